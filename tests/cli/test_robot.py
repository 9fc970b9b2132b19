"""``takt robot`` against a server and a simulator that are functions, in real time."""

import contextlib
import io
import json
import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from rich.console import Console
from tests.client.fakes import FakeConnection

from takt.cli.interruption import Interruption
from takt.cli.main import main
from takt.cli.robot import DriveRobot
from takt.client.answer import Answer
from takt.client.episode import read_episode, summary
from takt.client.episode_log import EpisodeLog
from takt.client.errors import ConnectionLostError
from takt.client.robots.described import RobotMismatchError
from takt.errors import ConfigError, RefusedError, TaktError, UsageError
from takt.policies.catalog import open_policy
from takt.policies.echo import EchoOptions, echo_spec
from takt.units import ms

ENV = "metaworld:door-open-v3"
FAST = {"env": ENV, "server": "here:1", "control_hz": 200.0}
MINI = open_policy("mini").spec


class Door:
    """Opens after 12 steps that move it."""

    opened: ClassVar[list[tuple[str, int]]] = []
    stepped: ClassVar[list[Any]] = []
    at_move: ClassVar[dict[int, Any]] = {}

    def __init__(self, task: str, *, seed: int) -> None:
        self.opened.append((task, seed))
        self.moved = 0

    def reset(self, index: int) -> None:
        self.moved = 0

    def state(self) -> Any:  # noqa: ANN401
        return np.zeros(4, np.float32)

    def image(self) -> Any:  # noqa: ANN401
        return np.full((112, 112, 3), 90, np.uint8)

    def step(self, action: Any) -> bool:  # noqa: ANN401
        self.stepped.append(np.array(action))
        if action[:3].any():
            self.moved += 1
            self.at_move.get(self.moved, lambda: None)()
        return self.moved >= 12

    def close(self) -> None:
        pass


class Server:
    """Where connections come from; they answer until there are no more answers."""

    def __init__(self) -> None:
        self.spec: Any = MINI
        self.answers: float = math.inf
        self.code = "failed"
        self.refusals: list[Exception] = []
        self.on_refusal: Callable[[], None] = lambda: None
        self.dialled: list[dict[str, Any]] = []
        self.connections: list[FakeConnection] = []

    def connect(self, address: str, **options: Any) -> FakeConnection:  # noqa: ANN401
        self.dialled.append({"address": address, **options})
        connection: Any = FakeConnection(self._ask)
        connection.model, connection.spec = "mini", self.spec
        connection.takes_leftovers, connection.model_digest = False, None
        self.connections.append(connection)
        return connection

    def _ask(self, seen: Mapping[str, object]) -> Answer:
        if self.refusals:
            self.on_refusal()
            raise self.refusals.pop(0)
        if self.answers <= 0:
            raise RefusedError("no more today", code=self.code)
        self.answers -= 1
        return Answer(actions=np.full((16, 4), 0.5), round_trip=ms(3))


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    Door.opened.clear()
    Door.stepped.clear()
    Door.at_move.clear()
    server = Server()
    monkeypatch.setattr("takt.cli.evaluating.environments.MetaworldTask", Door)
    monkeypatch.setattr("takt.cli.robot.connect", server.connect)
    before = threading.enumerate()
    yield server
    for thread in [thread for thread in threading.enumerate() if thread not in before]:
        thread.join(20)  # it may still be about to end
        assert not thread.is_alive()
    assert all(connection.closed.is_set() for connection in server.connections)


def driven(**options: Any) -> dict[str, Any]:  # noqa: ANN401
    return DriveRobot(**{**FAST, **options}).drive(Console(file=io.StringIO()), Interruption())


def test_figures_tell_what_was_run_and_how_it_went() -> None:
    figures = driven(episodes=2, seed=9)

    assert Door.opened == [("door-open-v3", 9)]
    assert (figures["episodes"], figures["solved"]) == (2, 2)
    assert figures["endings"] == {"solved": 2}
    assert figures["instruction"] == "open the door"
    assert (figures["mode"], figures["g"], figures["control_hz"]) == ("async", 0.5, 200.0)
    assert figures["model_digest"] == MINI.digest
    assert figures["executed"] == 24
    assert figures["round_trip_ms"]["p50"] == 3.0


def test_every_episode_has_a_session_of_its_own(server: Server) -> None:
    driven(episodes=3, model="arm")

    robots = [dialled["robot"] for dialled in server.dialled]
    assert len(robots) == len(set(robots)) == 1 + 3  # one to learn the model's card
    assert {dialled["model"] for dialled in server.dialled} == {"arm"}


def test_the_rate_is_the_policys_own_unless_told_otherwise(server: Server) -> None:
    figures = driven(control_hz=None, max_steps=2)

    assert figures["control_hz"] == MINI.action.control_hz
    server.spec = echo_spec("echo", EchoOptions())
    with pytest.raises(UsageError, match="--control-hz is needed"):
        driven(control_hz=None)


def test_sync_executes_the_policys_own_share_and_async_all_of_a_chunk() -> None:
    assert driven(sync=True)["execute"] == MINI.action.execution_horizon
    assert driven(sync=True, execute=3)["execute"] == 3
    assert driven()["execute"] is None


@pytest.mark.parametrize("options", [{"rule": "latency"}, {"g": 0.0}, {"merge": "average"}])
def test_other_rules_drive_too(options: dict[str, Any]) -> None:
    assert driven(**options)["solved"] == 1


def test_a_model_of_another_robot_is_refused_before_anything_moves(server: Server) -> None:
    turned = MINI.action.axes[::-1]
    server.spec = replace(MINI, action=replace(MINI.action, axes=turned))

    with pytest.raises(RobotMismatchError, match="'move_x' in cm at place 0"):
        driven()


def test_a_model_that_is_not_ready_is_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("takt.cli.robot._PAUSE_S", 0.0)
    server.refusals = [RefusedError("later", code=code) for code in ("busy", "expired", "busy")]

    assert driven()["solved"] == 1


def test_an_observation_that_is_refused_is_said_before_anything_moves(server: Server) -> None:
    server.refusals = [RefusedError("no such camera", code="observation")]

    with pytest.raises(RefusedError, match="no such camera"):
        driven()


def test_a_server_that_is_lost_between_episodes_is_told_and_not_fatal(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = ConnectionLostError("no server", code="unreachable")

    def connect(address: str, **options: Any) -> FakeConnection:  # noqa: ANN401
        if len(server.dialled) >= 2:
            raise lost
        return server.connect(address, **options)

    monkeypatch.setattr("takt.cli.robot.connect", connect)
    figures = driven(episodes=2, max_steps=30)

    assert figures["endings"] == {"solved": 1, "ticks": 1}
    assert figures["failures"]["unreachable"] >= 1
    assert figures["last_failure"] == "no server"


def test_a_run_in_which_nothing_was_executed_fails(server: Server) -> None:
    server.answers = 1  # the first, before any clock runs

    with pytest.raises(TaktError, match="no action was executed: no more today"):
        DriveRobot(**FAST, max_steps=5).run()


def test_what_a_server_calls_its_refusals_is_printed_as_it_is(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers, server.code = 1, "[/bold]"
    arguments = ["robot", "--env", ENV, "--server", "here:1", "--control-hz", "200"]

    assert main([*arguments, "--max-steps", "20"]) == 1

    assert "failures: [/bold]" in capsys.readouterr().out


def test_the_log_is_read_by_takt_episode(tmp_path: Path) -> None:
    driven(log=tmp_path / "run.jsonl")

    told = summary(read_episode(tmp_path / "run.jsonl"))
    assert told["is_complete"]
    assert told["executed"] == 12
    assert told["head"]["robot"] == ENV


def test_several_episodes_have_a_log_each_and_one_trace(tmp_path: Path) -> None:
    driven(episodes=2, log=tmp_path / "run.jsonl", trace=tmp_path / "trace.jsonl")

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "run-0.jsonl",
        "run-1.jsonl",
        "trace.jsonl",
    ]
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert [line for line in lines if "solved" in line] == [
        {"episode": 0, "solved": True},
        {"episode": 1, "solved": True},
    ]
    assert lines[-2]["action"] == [0.5] * 4


@pytest.mark.parametrize("name", ["run-0.jsonl", "run-1.jsonl", "link.jsonl"])
def test_a_log_that_gets_a_number_is_not_the_trace(
    tmp_path: Path, server: Server, name: str
) -> None:
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "run-1.jsonl")

    with pytest.raises(UsageError, match=rf"^--trace .*{name}: is the file of --log; give another"):
        driven(episodes=2, log=tmp_path / "run.jsonl", trace=tmp_path / name)

    assert not server.dialled
    assert [path.name for path in tmp_path.iterdir()] == ["link.jsonl"]


def test_the_name_that_logs_are_named_after_is_free_for_the_trace(tmp_path: Path) -> None:
    driven(episodes=2, log=tmp_path / "run.jsonl", trace=tmp_path / "run.jsonl")

    assert len([*tmp_path.iterdir()]) == 3


def test_a_full_disk_ends_the_trace_and_every_episode_is_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    figures = driven(episodes=2, trace=Path("/dev/full"))

    assert figures["endings"] == {"solved": 2}
    assert [it.getMessage() for it in caplog.records if it.name.endswith(".recording")] == [
        "trace is incomplete: file=full reason=No space left on device"
    ]


def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["robot", "--env", ENV, "--server", "here:1", "--control-hz", "200", "--json"]
    assert main(arguments) == 0

    assert json.loads(capsys.readouterr().out)["solved"] == 1


def test_people_get_sentences_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["robot", "--env", ENV, "--server", "here:1", "--control-hz", "200"]) == 0

    said = capsys.readouterr().out
    assert said.startswith("episode 1 of 1: solved after")
    assert "solved 1 of 1: 100%" in said
    assert "12 actions in" in said


@pytest.mark.usefixtures("signals_are_heeded")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_robot_and_tells_what_was_run(
    number: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Door.at_move[5] = lambda: signal.raise_signal(number)
    arguments = ["robot", "--env", ENV, "--server", "here:1", "--control-hz", "200", "--json"]

    status = main([*arguments, "--episodes", "3", "--log", str(tmp_path / "run.jsonl")])

    figures = json.loads(capsys.readouterr().out)
    assert status == 128 + number
    assert figures["broken_off"]
    assert figures["endings"] == {"stopped": 1}
    assert figures["executed"] == sum(action[:3].any() for action in Door.stepped) == 5
    assert not Door.stepped[-1][:3].any()  # the displacement in force is nothing
    told = summary(read_episode(tmp_path / "run-0.jsonl"))
    assert told["is_complete"]
    assert told["changes"][-1]["cause"] == "stop"


def test_a_signal_between_episodes_ends_the_run_and_tells_those_before(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def connect(address: str, **options: Any) -> FakeConnection:  # noqa: ANN401
        if len(server.dialled) == 2:
            signal.raise_signal(signal.SIGTERM)
        return server.connect(address, **options)

    monkeypatch.setattr("takt.cli.robot.connect", connect)
    arguments = ["robot", "--env", ENV, "--server", "here:1", "--control-hz", "200"]

    assert main([*arguments, "--episodes", "3"]) == 143

    said = capsys.readouterr().out
    assert "solved 1 of 1" in said
    assert "the run was broken off" in said


def test_a_signal_whose_exception_is_caught_on_the_way_lets_no_further_episode_move(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def connect(address: str, **options: Any) -> FakeConnection:  # noqa: ANN401
        if len(server.dialled) == 2:
            with contextlib.suppress(KeyboardInterrupt):  # as in a finalizer
                signal.raise_signal(signal.SIGTERM)
        return server.connect(address, **options)

    monkeypatch.setattr("takt.cli.robot.connect", connect)
    arguments = ["robot", "--env", ENV, "--server", "here:1", "--control-hz", "200", "--json"]

    assert main([*arguments, "--episodes", "3"]) == 143

    figures = json.loads(capsys.readouterr().out)
    assert figures["endings"] == {"solved": 1, "stopped": 1}
    assert figures["executed"] == 12


def test_a_signal_while_a_log_is_opened_leaves_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(EpisodeLog):
        def __init__(self, path: Path, **options: Any) -> None:  # noqa: ANN401
            signal.raise_signal(signal.SIGTERM)
            super().__init__(path, **options)

    monkeypatch.setattr("takt.cli.robot.EpisodeLog", Slow)
    arguments = ["robot", "--env", ENV, "--server", "here:1", "--control-hz", "200"]

    assert main([*arguments, "--log", str(tmp_path / "run.jsonl")]) == 143

    assert read_episode(tmp_path / "run.jsonl").head["robot"] == ENV
    assert not Door.stepped


def test_a_signal_before_anything_was_run_ends_it_without_figures(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.refusals = [RefusedError("later", code="busy")]
    server.on_refusal = lambda: signal.raise_signal(signal.SIGTERM)

    assert main(["robot", "--env", ENV, "--server", "here:1"]) == 143

    assert capsys.readouterr() == ("", "")
    assert not Door.stepped


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"env": "door"}, UsageError, "metaworld:TASK or gymnasium:ID"),
        ({"episodes": 51}, UsageError, "--episodes"),
        ({"max_steps": 0}, UsageError, "--max-steps must be at least 1, got 0"),
        ({"max_steps": 501}, UsageError, "--max-steps"),
        ({"execute": 0}, UsageError, "--execute"),
        ({"g": 1.5}, UsageError, "--g must lie in 0 to 1, got 1.5"),
        ({"g": float("nan")}, ConfigError, "--g"),
        ({"control_hz": 0.0}, ConfigError, "--control-hz"),
        ({"control_hz": float("inf")}, ConfigError, "--control-hz"),
        ({"strip": Path("strip.txt")}, ConfigError, "--strip strip.txt: expected a name that ends"),
    ],
)
def test_impossible_options_are_refused_before_anything_is_opened(
    server: Server, options: dict[str, Any], error: type[TaktError], said: str
) -> None:
    with pytest.raises(error, match=said):
        driven(**options)

    assert not Door.opened
    assert not server.dialled


@pytest.mark.parametrize("as_json", [True, False])
def test_a_server_that_is_gone_at_the_end_fails_the_run_after_its_figures(
    as_json: bool,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def connect(address: str, **options: Any) -> FakeConnection:  # noqa: ANN401
        if len(server.dialled) >= 2:
            raise ConnectionLostError("no server", code="unreachable")
        return server.connect(address, **options)

    monkeypatch.setattr("takt.cli.robot.connect", connect)
    arguments = ["robot", "--env", ENV, "--server", "here:1", "--control-hz", "200"]
    more = ["--episodes", "2", "--max-steps", "30", *(["--json"] if as_json else [])]

    assert main([*arguments, *more]) == 1

    out, err = capsys.readouterr()
    said = "s into the run for 1 of 1 robots and did not come back by the end"
    assert said in (err if as_json else out)
    assert err.endswith("takt: the server was gone when the run ended\n")
    if as_json:
        assert json.loads(out)["server_away"]["for_good"] is True
