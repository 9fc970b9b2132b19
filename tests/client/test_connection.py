from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from tests.client.fakes import TAKT, ScriptedTransport, chunk, reply
from tests.wire.pictures import natural, red

from takt.client.connection import Connection
from takt.client.errors import ConnectionLostError
from takt.client.image_settings import ImageSettings, SendImages
from takt.doors.openpi_images import image_offer
from takt.errors import ConfigError, InvariantError, RefusedError, UsageError, WireError
from takt.policies.echo import EchoOptions, echo_spec
from takt.schema.plain import to_plain
from takt.schema.spec import CameraSpec, ObservationSpec
from takt.testing import ManualClock
from takt.units import ms, seconds

OBSERVATION = {"observation/state": np.zeros(2, np.float32), "prompt": "wave"}


def opened(
    transport: ScriptedTransport,
    metadata: Mapping[str, object] = TAKT,
    clock: ManualClock | None = None,
) -> Connection:
    return Connection(
        transport,
        metadata,
        answer_timeout=seconds(3),
        clock=(clock or ManualClock()).now,
    )


def test_a_stock_server_is_asked_as_openpis_own_client_asks_it() -> None:
    transport = ScriptedTransport(reply(chunk()))
    connection = opened(transport, {"reset_pose": [0.0]})

    connection.infer(OBSERVATION, due_in=ms(50), expires_in=ms(90))

    assert list(transport.sent[0]) == ["observation/state", "prompt"]
    assert not connection.is_takt


def test_takt_is_told_how_long_the_robot_can_wait() -> None:
    transport = ScriptedTransport(reply(chunk()), reply(chunk()))
    connection = opened(transport)

    connection.infer(OBSERVATION, due_in=-ms(5), expires_in=ms(90))
    connection.infer(OBSERVATION, timing=False)

    assert transport.sent[0]["takt"] == {
        "sequence": 0,
        "due_ms": -5.0,
        "expires_ms": 90.0,
        "timing": True,
        "errors": "map",
    }
    assert transport.sent[1]["takt"] == {"sequence": 1, "errors": "map"}


def test_the_round_trip_is_measured_on_the_robots_clock() -> None:
    clock = ManualClock()
    transport = ScriptedTransport(
        reply(chunk(), server_timing={"infer_ms": 4.0}), clock=clock, takes=ms(7)
    )

    answer = opened(transport, clock=clock).infer(OBSERVATION)

    assert (answer.round_trip, answer.network) == (ms(7), ms(3))
    assert transport.timeouts == [seconds(3)]


def test_after_a_refusal_the_connection_serves_on() -> None:
    transport = ScriptedTransport("expired: too late", reply(chunk()))
    connection = opened(transport)

    with pytest.raises(RefusedError, match="too late"):
        connection.infer(OBSERVATION)

    assert connection.infer(OBSERVATION).actions.shape == (4, 2)


def test_after_a_reply_without_a_chunk_the_connection_serves_on() -> None:
    transport = ScriptedTransport(reply(np.array([[np.nan]])), reply(chunk()))
    connection = opened(transport)

    with pytest.raises(WireError):
        connection.infer(OBSERVATION)

    assert connection.infer(OBSERVATION).sequence is None


def test_silence_closes_so_that_a_late_answer_finds_nobody() -> None:
    silence = ConnectionLostError("nothing for 3 s", code="timeout")
    transport = ScriptedTransport(silence, reply(chunk()))
    connection = opened(transport)

    with pytest.raises(ConnectionLostError, match="nothing for 3 s"):
        connection.infer(OBSERVATION)

    assert transport.is_closed
    with pytest.raises(ConnectionLostError, match="connect again"):
        connection.infer(OBSERVATION)
    assert len(transport.sent) == 1


def test_an_answer_to_another_observation_is_never_handed_out() -> None:
    transport = ScriptedTransport(reply(chunk(), takt={"sequence": 7}))

    with pytest.raises(InvariantError, match="observation 7, not to 0"):
        opened(transport).infer(OBSERVATION)

    assert transport.is_closed


def test_a_stock_server_that_answers_twice_is_asked_nothing_more() -> None:
    transport = ScriptedTransport(reply(chunk()), reply(chunk()))
    connection = opened(transport, {})
    connection.infer(OBSERVATION)
    transport.unread = True

    with pytest.raises(InvariantError, match="nobody asked for"):
        connection.infer(OBSERVATION)

    assert transport.is_closed
    assert len(transport.sent) == 1


def test_an_observation_that_cannot_be_sent_is_not_sent() -> None:
    transport = ScriptedTransport()

    with pytest.raises(UsageError, match="camera"):
        opened(transport).infer({"camera": object()})

    assert transport.sent == []


def test_leaving_the_context_closes() -> None:
    transport = ScriptedTransport()

    with opened(transport):
        assert not transport.is_closed

    assert transport.is_closed


def test_takts_greeting_names_model_and_spec() -> None:
    spec = echo_spec("echo", EchoOptions(horizon=16))
    metadata = {"takt": {"version": "0", "model": "echo", "spec": to_plain(spec)}}

    connection = opened(ScriptedTransport(), metadata)

    assert connection.model == "echo"
    assert connection.spec == spec


@pytest.mark.parametrize("metadata", [{}, {"takt": 1}, {"model": "x", "spec": {}}])
def test_a_greeting_that_is_not_takts_names_nothing(metadata: dict[str, object]) -> None:
    connection = opened(ScriptedTransport(), metadata)

    assert (connection.is_takt, connection.model, connection.spec) == (False, None, None)


@pytest.mark.parametrize(
    ("card", "takes"),
    [
        ({}, False),
        ({"takes_leftovers": False}, False),
        ({"takes_leftovers": True}, True),
        ({"takes_leftovers": "no"}, False),
    ],
)
def test_a_model_takes_leftovers_where_its_server_says_so(
    card: dict[str, object], takes: bool
) -> None:
    connection = opened(ScriptedTransport(), {"takt": {"model": "fold", **card}})

    assert connection.takes_leftovers is takes
    assert not opened(ScriptedTransport(), {**card}).takes_leftovers


def test_a_spec_of_a_later_version_does_not_keep_a_robot_from_asking() -> None:
    connection = opened(ScriptedTransport(reply(chunk())), {"takt": {"spec": {"gesture": "new"}}})

    with pytest.raises(ConfigError, match="gesture"):
        _ = connection.spec

    assert connection.infer(OBSERVATION).actions.shape == (4, 2)


CAMERA = CameraSpec(name="top", height=12, width=16, resize="stretch")
SPEC = ObservationSpec(cameras=(CAMERA,), state_dim=2)
TAKES_IMAGES = {
    "takt": {
        "model": "mini",
        "spec": to_plain(replace(echo_spec("mini", EchoOptions()), observation=SPEC)),
        "images": image_offer(SPEC),
    }
}


def sending(
    metadata: Mapping[str, object], send: SendImages, clock: ManualClock | None = None
) -> tuple[Connection, ScriptedTransport]:
    transport = ScriptedTransport(reply(chunk()))
    settings = ImageSettings(send=send)
    now = (clock or ManualClock()).now
    return Connection(transport, metadata, images=settings, clock=now), transport


def test_images_are_sent_as_the_server_takes_them_and_the_bytes_are_told() -> None:
    connection, transport = sending(TAKES_IMAGES, "png")
    picture = red(240, 320)

    answer = connection.infer({**OBSERVATION, "observation/top": picture})

    file = transport.sent[0]["observation/top"]
    assert (file.encoding, file.shape) == ("png", (12, 16, 3))
    assert answer.sent_bytes < 1_000
    assert answer.raw_bytes == answer.sent_bytes + picture.nbytes - len(file.data)


def test_an_observation_that_goes_as_it_is_has_as_many_bytes_as_are_sent() -> None:
    connection, _ = sending(TAKES_IMAGES, "as_given")

    answer = connection.infer({**OBSERVATION, "observation/top": natural()})

    assert answer.raw_bytes == answer.sent_bytes > natural().nbytes


@pytest.mark.parametrize("metadata", [{}, TAKT, {"takt": {"images": 5, "spec": {"new": 1}}}])
def test_a_server_that_says_nothing_of_images_gets_arrays(
    metadata: Mapping[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    connection, transport = sending(metadata, "jpeg")

    connection.infer({**OBSERVATION, "observation/top": natural()})

    np.testing.assert_array_equal(transport.sent[0]["observation/top"], natural())
    assert connection.images.encoding is None
    assert "no image is encoded, as the server takes no jpeg" in caplog.text


class PreparingClock(ManualClock):
    """Every look at it takes 4 ms."""

    def now(self) -> int:
        return self.advance(ms(4))


def test_the_time_that_preparing_images_took_is_no_longer_there() -> None:
    connection, transport = sending(TAKES_IMAGES, "png", PreparingClock())

    connection.infer({**OBSERVATION, "observation/top": natural()}, due_in=ms(10), expires_in=ms(3))

    assert transport.sent[0]["takt"]["due_ms"] == 6.0
    assert 0 < transport.sent[0]["takt"]["expires_ms"] < 0.001
