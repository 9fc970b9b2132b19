import pytest

from takt.doors.lerobot_peers import Peer, Peers
from takt.doors.lerobot_records import SessionRecords
from takt.doors.limits import DoorLimits
from takt.errors import RefusedError, WireError
from takt.wire.lerobot_messages import ObservationAssembler, TransferState

PIECE = memoryview(b"x" * 10)


def some_peers(**limits: int) -> Peers:
    return Peers(DoorLimits(**limits), SessionRecords(None, 0), lambda: 0)  # type: ignore[arg-type]


def two_peers(peers: Peers) -> tuple[Peer, Peer]:
    return peers.add("ipv4:10.0.0.7:1", "10.0.0.7"), peers.add("ipv4:10.0.0.7:2", "10.0.0.7")


def test_unfinished_observations_of_all_connections_share_one_limit() -> None:
    peers = some_peers(max_uploading_bytes=25)
    one, other = two_peers(peers)
    first, second = ObservationAssembler(100), ObservationAssembler(100)

    with peers.uploading(one, first, most=2), peers.uploading(other, second, most=2):
        peers.join(first, TransferState.BEGIN, PIECE)
        peers.join(second, TransferState.BEGIN, PIECE)
        with pytest.raises(RefusedError, match="hold 25 bytes together, the limit") as caught:
            peers.join(second, TransferState.MIDDLE, PIECE)

        assert caught.value.code == "busy"
        assert peers.uploading_bytes == 20


def test_what_an_upload_held_is_given_back_however_it_ends() -> None:
    peers = some_peers()
    one, other = two_peers(peers)
    whole, cut = ObservationAssembler(100), ObservationAssembler(15)

    with peers.uploading(one, whole, most=2):
        peers.join(whole, TransferState.BEGIN, PIECE)
        assert peers.join(whole, TransferState.END, PIECE) == b"x" * 20
        assert peers.uploading_bytes == 0
    with peers.uploading(other, cut, most=2):
        peers.join(cut, TransferState.BEGIN, PIECE)
        with pytest.raises(WireError):
            peers.join(cut, TransferState.MIDDLE, PIECE)
        assert peers.uploading_bytes == 10

    assert peers.uploading_bytes == 0
    assert (one.num_uploads, other.num_uploads) == (0, 0)


def test_too_many_uploads_of_one_connection_are_refused() -> None:
    peers = some_peers()
    one, other = two_peers(peers)
    joining = ObservationAssembler(100)

    with peers.uploading(one, joining, most=1):
        again = peers.uploading(one, joining, most=1)
        with pytest.raises(RefusedError, match="1 observations of this connection"):
            again.__enter__()
        with peers.uploading(other, joining, most=1):
            assert other.num_uploads == 1


def test_more_connections_than_the_limit_are_refused() -> None:
    peers = some_peers(max_connections=2)
    two_peers(peers)

    with pytest.raises(RefusedError, match="2 connections are open, the limit"):
        peers.add("ipv4:10.0.0.7:3", "10.0.0.7")
