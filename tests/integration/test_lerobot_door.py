"""LeRobot's protocol on a real socket, with a real gateway and a real worker behind it."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tests.integration.gateway_server import TIMEOUT_S
from tests.integration.lerobot_server import LerobotClient, LerobotServer

from takt.wire.lerobot import LerobotObservation, encode_observation
from takt.wire.lerobot_messages import (
    TransferState,
    encode_observation_message,
    encode_policy_setup_message,
    split_observation,
)
from takt.wire.lerobot_objects import Spelling

pytestmark = pytest.mark.integration

CODE = grpc.StatusCode
FAIL = -31337.0


@pytest.fixture(scope="module")
def server() -> Iterator[LerobotServer]:
    server = LerobotServer(
        latencies_ms={"echo": 0.0, "slow": 800.0}, models={"echo": {"aliases": ["team/fold"]}}
    )
    yield server
    server.close()


@pytest.fixture
def client(server: LerobotServer) -> Iterator[LerobotClient]:
    with LerobotClient(server.port) as client:
        yield client


def refused(caught: pytest.ExceptionInfo[grpc.RpcError]) -> tuple[grpc.StatusCode, str]:
    error = caught.value
    assert isinstance(error, grpc.Call)
    return error.code(), error.details() or ""


def code_of(error: grpc.RpcError) -> grpc.StatusCode:
    assert isinstance(error, grpc.Call)
    return error.code()


def outcome_of(call: Callable[[], object]) -> object:
    """What a call answers, or the code it is refused with."""
    try:
        return call()
    except grpc.RpcError as error:
        return code_of(error)


def polled_twice(client: LerobotClient) -> list[object]:
    """The outcomes of two polls at once."""
    with ThreadPoolExecutor(2) as pool:
        return [*pool.map(outcome_of, [client.chunk] * 2)]


def test_a_chunk_is_the_echo_of_its_observation(client: LerobotClient) -> None:
    client.shake_hands(actions=7)
    client.observe(40, 5.0, must_go=True)

    chunk = client.chunk()

    assert chunk is not None
    expected = np.array([5.0, 6.0, 7.0], np.float32) + np.arange(7, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(chunk.actions, expected)
    assert chunk.timesteps == tuple(range(40, 47))
    assert chunk.timestamps[0] == 1_700_000_000.0
    assert chunk.timestamps[3] - chunk.timestamps[0] == pytest.approx(3 / 30, abs=1e-6)


def test_a_client_of_lerobot_0_3_is_answered_in_its_own_words(client: LerobotClient) -> None:
    client.shake_hands(spelling=Spelling.SCRIPTS_SERVER)
    client.observe(0, must_go=True, spelling=Spelling.SCRIPTS_SERVER)

    chunk = client.chunk()

    assert chunk is not None
    assert chunk.spelling is Spelling.SCRIPTS_SERVER


def test_an_observation_in_pieces_with_images_is_one_observation(client: LerobotClient) -> None:
    side = 1200
    client.shake_hands(cameras={"front": (side, side, 3)})
    client.observe(0, 9.0, must_go=True, more={"front": np.zeros((side, side, 3), np.uint8)})

    assert client.origin() == 9.0


def test_an_alias_names_a_model_and_nothing_else_is_loaded(client: LerobotClient) -> None:
    client.shake_hands("team/fold")
    with pytest.raises(grpc.RpcError) as caught:
        client.shake_hands("/etc/passwd")

    code, sentence = refused(caught)
    assert code is CODE.NOT_FOUND
    assert "no model '/etc/passwd' here; this server has: echo, slow, team/fold" in sentence


def test_a_poll_without_anything_to_say_is_empty_after_two_seconds(client: LerobotClient) -> None:
    client.shake_hands()

    assert client.chunk() is None


def test_the_newest_observation_wins(client: LerobotClient) -> None:
    client.shake_hands()
    for timestep in (0, 10, 20):
        client.observe(timestep, float(timestep))

    assert client.origin() == 20.0


def test_a_predicted_timestep_is_computed_again_only_when_it_must(client: LerobotClient) -> None:
    client.shake_hands()
    client.observe(3, 1.0)
    assert client.origin() == 1.0

    client.observe(3, 2.0)
    client.observe(3, 3.0, must_go=True)

    assert client.origin() == 3.0


def test_a_failed_inference_is_told_and_the_next_observation_is_served(
    client: LerobotClient,
) -> None:
    client.shake_hands()
    client.observe(0, FAIL, must_go=True)
    with pytest.raises(grpc.RpcError) as caught:
        client.chunk()

    code, sentence = refused(caught)
    assert code is CODE.INTERNAL
    assert "inference failed on demand" in sentence
    client.observe(0, 4.0)
    assert client.origin() == 4.0


def test_a_second_ready_begins_anew(client: LerobotClient) -> None:
    client.shake_hands()
    client.observe(0, 1.0, must_go=True)
    assert client.origin() == 1.0

    client.shake_hands()
    client.observe(0, 2.0)

    assert client.origin() == 2.0


@pytest.mark.parametrize(
    ("key", "change"), [("timestep", {"timestep": 2**63 - 1}), ("timestamp", {"timestamp": 1e300})]
)
def test_what_no_robot_counts_is_refused_by_its_key_and_the_next_is_served(
    client: LerobotClient, key: str, change: dict[str, Any]
) -> None:
    client.shake_hands()
    usual = LerobotObservation(
        timestamp=1_700_000_000.0,
        timestep=0,
        must_go=True,
        values=dict.fromkeys(client.joints(3), 1.0),
        spelling=Spelling.ASYNC_INFERENCE,
    )
    with pytest.raises(grpc.RpcError) as caught:
        client.send_bytes(encode_observation(replace(usual, **change)))

    code, sentence = refused(caught)
    assert code is CODE.INVALID_ARGUMENT
    assert key in sentence
    client.observe(0, 4.0, must_go=True)
    assert client.origin() == 4.0


def test_a_timestep_that_is_turned_back_a_long_way_is_served(client: LerobotClient) -> None:
    client.shake_hands()
    client.observe(2**62, 1.0)
    assert client.origin() == 1.0

    client.observe(0, 2.0)

    assert client.origin() == 2.0


def test_an_observation_that_began_before_a_handshake_is_not_the_new_robots(
    client: LerobotClient,
) -> None:
    client.shake_hands()
    data = encode_observation(
        LerobotObservation(
            timestamp=1_700_000_000.0,
            timestep=500,
            must_go=True,
            values=dict.fromkeys(client.joints(3), 7.0),
            spelling=Spelling.ASYNC_INFERENCE,
        )
    )
    pieces = [encode_observation_message(*piece) for piece in split_observation(data, 64)]
    half_sent, go_on = threading.Event(), threading.Event()

    def slowly() -> Iterator[bytes]:
        yield pieces[0]
        half_sent.set()
        assert go_on.wait(TIMEOUT_S)
        yield from pieces[1:]

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(outcome_of, lambda: client.send(slowly(), timeout=TIMEOUT_S))
        assert half_sent.wait(TIMEOUT_S)
        # The piece is ahead of the handshake on the connection; an answer shows it was taken.
        client.ready(b"", timeout=TIMEOUT_S)
        client.shake_hands()
        go_on.set()

    assert sending.result() == CODE.ABORTED
    client.observe(0, 3.0, must_go=True)
    assert client.origin() == 3.0


def test_a_client_between_two_polls_gets_no_chunk_of_the_next_on_its_connection(
    client: LerobotClient,
) -> None:
    client.shake_hands()
    client.observe(0, 1.0, must_go=True)
    assert client.origin() == 1.0
    client.shake_hands()  # another client, which sends and polls
    client.observe(0, 2.0, must_go=True)

    assert polled_twice(client) == [CODE.FAILED_PRECONDITION] * 2


def test_ready_alone_is_no_handshake(client: LerobotClient) -> None:
    client.shake_hands()
    client.ready(b"", timeout=TIMEOUT_S)
    with pytest.raises(grpc.RpcError) as caught:
        client.observe(0)

    code, sentence = refused(caught)
    assert code is CODE.FAILED_PRECONDITION
    assert "SendPolicyInstructions" in sentence


def test_two_robots_get_their_own_actions(server: LerobotServer) -> None:
    with LerobotClient(server.port) as one, LerobotClient(server.port) as other:
        one.shake_hands()
        other.shake_hands("slow", joints=5, actions=4)
        other.observe(0, 1000.0, joints=5, must_go=True)
        one.observe(0, 2000.0, must_go=True)

        assert (one.origin(), other.origin()) == (2000.0, 1000.0)


def test_two_clients_on_one_connection_are_told_apart_by_nobody_and_refused(
    client: LerobotClient,
) -> None:
    client.shake_hands()

    assert CODE.FAILED_PRECONDITION in polled_twice(client)
    with pytest.raises(grpc.RpcError, match="two robot clients share this connection"):
        client.observe(0)


def test_a_robot_that_does_not_fit_is_told_everything_at_its_handshake(
    client: LerobotClient,
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.shake_hands(joints=3000)

    code, sentence = refused(caught)
    assert code is CODE.FAILED_PRECONDITION
    assert "shape of observation.state: the policy takes (2048,)" in sentence


@pytest.mark.parametrize(
    ("joints", "pixels", "words"),
    [
        (2, 8, "j2.pos: expected a number, got no such key"),
        (3, 4, "front: expected shape (8, 8, 3)"),
    ],
)
def test_an_observation_that_was_not_announced_is_refused_by_its_key(
    client: LerobotClient, joints: int, pixels: int, words: str
) -> None:
    client.shake_hands(cameras={"front": (8, 8, 3)})
    with pytest.raises(grpc.RpcError) as caught:
        client.observe(0, joints=joints, more={"front": np.zeros((pixels, pixels, 3), np.uint8)})

    code, sentence = refused(caught)
    assert code is CODE.INVALID_ARGUMENT
    assert words in sentence
    client.observe(0, 6.0, more={"front": np.zeros((8, 8, 3), np.uint8)})
    assert client.origin() == 6.0


def test_an_incomplete_observation_is_refused_and_the_next_is_served(
    client: LerobotClient,
) -> None:
    client.shake_hands()
    with pytest.raises(grpc.RpcError) as caught:
        client.send(iter([encode_observation_message(TransferState.BEGIN, b"begun")]))

    assert refused(caught)[0] is CODE.INVALID_ARGUMENT
    client.observe(0, 8.0)
    assert client.origin() == 8.0


def test_hostile_pickles_run_nothing_and_are_refused_in_words(
    client: LerobotClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAKT_CANARY", str(tmp_path / "canary"))
    client.shake_hands()
    hostile = Path(__file__).parents[1] / "golden" / "hostile"
    cases = [
        case for case in json.loads((hostile / "index.json").read_text())["cases"]
        if case["case"].startswith("pickle_")
    ]  # fmt: skip
    for case in cases:
        content = (hostile / case["file"]).read_bytes()
        for send in (client.send_bytes, lambda data: client.set_up(
            encode_policy_setup_message(data), timeout=TIMEOUT_S
        )):  # fmt: skip
            with pytest.raises(grpc.RpcError) as caught:
                send(content)
            code, sentence = refused(caught)
            assert code in {CODE.INVALID_ARGUMENT, CODE.RESOURCE_EXHAUSTED}, case["case"]
            assert "/" not in sentence

    assert not (tmp_path / "canary").exists()
    client.observe(0, 3.0)
    assert client.origin() == 3.0


def test_a_message_over_the_limit_is_refused_before_it_is_read(client: LerobotClient) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.set_up(bytes(5 * 2**20), timeout=TIMEOUT_S)

    assert refused(caught)[0] is CODE.RESOURCE_EXHAUSTED


def test_refused_observations_leave_no_memory_behind(
    server: LerobotServer, client: LerobotClient
) -> None:
    client.shake_hands()
    pieces = [encode_observation_message(TransferState.BEGIN, bytes(2 * 2**20))]
    pieces += [encode_observation_message(TransferState.MIDDLE, bytes(2 * 2**20))] * 20
    before = server.memory_mib()
    for _ in range(8):
        with pytest.raises(grpc.RpcError) as caught:
            client.send(iter(pieces), timeout=TIMEOUT_S)
        assert refused(caught)[0] is CODE.RESOURCE_EXHAUSTED

    # One observation is refused at 32 MiB; eight of them that stayed would be 256 MiB.
    assert server.memory_mib() - before < 120


def test_handshakes_are_answered_while_inferences_run(server: LerobotServer) -> None:
    with LerobotClient(server.port) as busy, LerobotClient(server.port) as other:
        busy.shake_hands("slow")
        with server.stopped_worker():  # no inference ends meanwhile
            busy.observe(0, 1.0, must_go=True)
            outcome: list[float] = []
            polling = threading.Thread(target=lambda: outcome.append(busy.origin()))
            polling.start()

            other.shake_hands()
            other.observe(0, 2.0, must_go=True)

            assert outcome == []
        polling.join(TIMEOUT_S)
    assert outcome == [1.0]


def test_many_idle_polls_keep_nobody_waiting(server: LerobotServer) -> None:
    with contextlib.ExitStack() as clients:
        idle = [clients.enter_context(LerobotClient(server.port)) for _ in range(16)]
        for one in idle:
            one.shake_hands()
        client = clients.enter_context(LerobotClient(server.port))
        client.shake_hands()

        # A poll ends by itself after two seconds: on a slow computer before the answers come.
        assert any(is_answered_beside(idle, client, first) for first in range(0, 1000, 100))


def is_answered_beside(idle: list[LerobotClient], client: LerobotClient, first: int) -> bool:
    """Whether a client gets all its answers while the polls of all the others are under way."""
    threads = [threading.Thread(target=one.chunk) for one in idle]
    for thread in threads:
        thread.start()
    for timestep in range(first, first + 100, 10):
        client.observe(timestep, float(timestep))
        assert client.origin() == timestep
    are_under_way = all(thread.is_alive() for thread in threads)
    for thread in threads:
        thread.join(TIMEOUT_S)
    return are_under_way
