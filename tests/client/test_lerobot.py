"""Our client over LeRobot's protocol, against a server that follows LeRobot's own rules."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.client import ConnectionLostError
from takt.client.exchange import Exchange
from takt.client.lerobot import LerobotConnection, connect_lerobot
from takt.client.lerobot_values import features_of
from takt.client.sender import AskingConnection
from takt.errors import InvariantError, RefusedError, UsageError, WireError
from takt.robot.replanning import ThresholdRule
from takt.testing import ManualClock
from takt.units import Nanos, ms
from takt.wire.lerobot import LerobotObservation, LerobotSetup, decode_observation, encode_actions
from takt.wire.lerobot_messages import (
    ObservationAssembler,
    decode_observation_message,
    encode_actions_message,
)
from takt.wire.lerobot_objects import Spelling
from takt.wire.limits import Limits

HORIZON = 6
FEATURES = features_of({"count.pos": float, "front": (2, 2, 3)})
Rows = Callable[[LerobotObservation], np.ndarray]


def counting(seen: LerobotObservation, horizon: int = HORIZON) -> np.ndarray:
    """A chunk that counts up from the observation's only joint."""
    first = np.float32(seen.values["count.pos"])
    return (first + np.arange(horizon, dtype=np.float32))[:, None]


class StockServer:
    """LeRobot's rules for what is computed, kept and answered, without a socket.

    Args:
        policy: Computes a chunk; what it raises is answered with nothing, as a stock server does.
    """

    def __init__(self, policy: Rows = counting, clock: ManualClock | None = None) -> None:
        self.policy = policy
        self.clock = clock or ManualClock(0)
        self.takes = ms(50)
        self.shift = 0
        """Added to the timesteps of an answer."""
        self.lost: Exception | None = None
        self.received: list[LerobotObservation] = []
        self.timeouts: list[Nanos] = []
        self.is_closed = False
        self._queue: LerobotObservation | None = None
        self._predicted: set[int] = set()
        self._last: LerobotObservation | None = None

    def ready(self, timeout: Nanos) -> None:
        del timeout
        self._queue, self._predicted = None, set()

    def set_up(self, message: bytes, timeout: Nanos) -> None:
        del message, timeout

    def observe(self, pieces: Iterable[bytes], timeout: Nanos) -> None:
        self.timeouts.append(timeout)
        if self.lost is not None:
            raise self.lost
        joining = ObservationAssembler(2**24)
        whole = None
        for piece in pieces:
            whole = joining.add(*decode_observation_message(piece))
        assert whole is not None
        received = decode_observation(whole, Limits())
        self.received.append(received)
        if received.must_go or not self._is_filtered(received):
            self._queue = received

    def get_actions(self, timeout: Nanos) -> bytes:
        self.timeouts.append(timeout)
        taken, self._queue = self._queue, None
        self.clock.advance(self.takes)
        if taken is None:
            return b""
        self._predicted.add(taken.timestep)
        self._last = taken
        try:
            rows = self.policy(taken)
        except ArithmeticError:
            return b""
        data = encode_actions(
            rows.astype(np.float32),
            first_timestep=taken.timestep + self.shift,
            first_timestamp=taken.timestamp,
            period_s=1 / 30,
            spelling=taken.spelling,
        )
        return encode_actions_message(data)

    def close(self) -> None:
        self.is_closed = True

    def _is_filtered(self, received: LerobotObservation) -> bool:
        if self._last is None:
            return False
        moved = abs(float(received.values["count.pos"]) - float(self._last.values["count.pos"]))
        return received.timestep in self._predicted or moved < 1


def connection_to(server: StockServer, **more: Any) -> LerobotConnection:  # noqa: ANN401
    setup = LerobotSetup(
        policy_type="act",
        pretrained_name_or_path="team/fold",
        features=FEATURES,
        actions_per_chunk=HORIZON,
        rename_map={},
        spelling=more.pop("spelling", Spelling.ASYNC_INFERENCE),
    )
    return LerobotConnection(server, setup, clock=server.clock.now, **more)


def seen(count: float = 0.0) -> Mapping[str, object]:
    return {"count.pos": count, "front": np.zeros((2, 2, 3), np.uint8), "task": "fold"}


def test_a_chunk_is_the_answer_to_its_observation() -> None:
    server = StockServer()
    connection: AskingConnection = connection_to(server)

    answer = connection.infer(seen(3.0))

    np.testing.assert_array_equal(answer.actions[:, 0], 3.0 + np.arange(HORIZON))
    assert not answer.actions.flags.writeable
    assert answer.round_trip == ms(50)
    assert answer.network is None
    assert server.received[0].values["task"] == "fold"


def test_no_observation_is_dropped_by_the_servers_filters() -> None:
    server = StockServer()
    connection = connection_to(server)

    answers = [connection.infer(seen(0.001 * step)) for step in range(5)]

    assert [len(answer.actions) for answer in answers] == [HORIZON] * 5
    assert all(received.must_go for received in server.received)
    assert len({received.timestep for received in server.received}) == 5


def test_two_connections_number_their_observations_differently() -> None:
    server = StockServer()
    for connection in (connection_to(server), connection_to(server)):
        connection.infer(seen())

    assert abs(server.received[0].timestep - server.received[1].timestep) > 1000


def test_a_server_of_lerobot_0_3_is_asked_in_its_own_words() -> None:
    server = StockServer()

    connection_to(server, spelling=Spelling.SCRIPTS_SERVER).infer(seen())

    assert server.received[0].spelling is Spelling.SCRIPTS_SERVER


def test_an_inference_that_failed_is_an_error_and_the_next_one_is_answered() -> None:
    fails = iter([True, False])

    def policy(received: LerobotObservation) -> np.ndarray:
        if next(fails):
            raise ZeroDivisionError
        return counting(received)

    connection = connection_to(StockServer(policy))

    with pytest.raises(RefusedError, match="has no actions for it") as caught:
        connection.infer(seen())
    assert caught.value.code == "failed"
    assert connection.infer(seen(1.0)).actions[0] == 1.0


@pytest.mark.parametrize("shift", [-1, 1, 1000])
def test_a_chunk_for_another_observation_is_not_handed_out(shift: int) -> None:
    server = StockServer()
    server.shift = shift
    connection = connection_to(server, first_timestep=100)

    with pytest.raises(InvariantError, match=f"timesteps {101 + shift} to {106 + shift} and not"):
        connection.infer(seen())

    assert server.is_closed
    with pytest.raises(ConnectionLostError, match="connect again"):
        connection.infer(seen())


def test_a_chunk_that_is_not_finite_is_not_handed_out() -> None:
    connection = connection_to(StockServer(lambda _: np.full((2, 1), np.nan)))

    with pytest.raises(WireError, match="expected finite numbers"):
        connection.infer(seen())


def test_a_lost_connection_is_closed() -> None:
    server = StockServer()
    server.lost = ConnectionLostError("gone", code="closed")
    connection = connection_to(server)

    with pytest.raises(ConnectionLostError, match="gone"):
        connection.infer(seen())

    assert server.is_closed


def test_both_calls_share_the_time_of_one_answer() -> None:
    clock = ManualClock(0)
    server = StockServer(clock=clock)
    take = server.observe

    def slow(pieces: Iterable[bytes], timeout: Nanos) -> None:
        take(pieces, timeout)
        clock.advance(ms(300))

    server.observe = slow
    connection_to(server, answer_timeout=ms(1000)).infer(seen())

    assert server.timeouts == [ms(1000), ms(700)]


@pytest.mark.parametrize(
    "address", ["", "http://host:1", "host:port", "a b", "host/path", "u@h:1", "h:0", "8080"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="address"):
        connect_lerobot(
            address,
            policy_type="act",
            pretrained_name_or_path="x",
            features={"a.pos": float},
            actions_per_chunk=1,
        )


def test_a_chunk_of_no_actions_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(UsageError, match="actions_per_chunk: expected 1 or more, got 0"):
        connect_lerobot(
            "host",
            policy_type="act",
            pretrained_name_or_path="x",
            features={"a.pos": float},
            actions_per_chunk=0,
        )


@pytest.mark.slow
@given(
    latencies=st.lists(st.integers(0, 9), min_size=1, max_size=10),
    threshold=st.sampled_from([0.0, 0.3, 0.5, 0.9]),
)
def test_no_action_is_executed_twice_or_left_out(latencies: list[int], threshold: float) -> None:
    # The policy answers with timesteps, so an action says which one it is for.
    clock = ManualClock(0)
    connection = connection_to(StockServer(clock=ManualClock(0)))
    exchange = Exchange(
        control_period=ms(20), clock=clock.now, rule=ThresholdRule(threshold=threshold)
    )
    executed: list[float] = []
    under_way: tuple[Any, Any, int] | None = None
    waits = iter(latencies)
    for tick in range(len(latencies) * 12):
        exchange.observe(seen(float(len(executed))))
        if under_way is None and (request := exchange.take_request()) is not None:
            answer = connection.infer(request.observation)
            under_way = (request, answer, tick + next(waits, 0))
        if under_way is not None and tick >= under_way[2]:
            exchange.answered(under_way[0], under_way[1])
            under_way = None
        action = exchange.next_action()
        executed += [] if action is None else [float(action[0])]
        clock.advance(ms(20))

    assert executed == [float(step) for step in range(len(executed))]
    assert len(executed) >= len(latencies)
