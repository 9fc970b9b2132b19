import json
from pathlib import Path
from typing import Any

import numpy as np

from takt.client.episode_log import EpisodeLog
from takt.client.journal import Journal
from takt.client.pacing import Tick
from takt.robot.action_queue import ChunkOrigin, TimedAction
from takt.testing import ManualClock
from takt.units import ms


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()][1:]


def journal_of(path: Path) -> tuple[Journal, EpisodeLog]:
    log = EpisodeLog(path, clock=ManualClock().now)
    return Journal(log), log


def action(now: int, journal: Journal, **more: Any) -> None:  # noqa: ANN401
    source = TimedAction(np.ones(2), 7, 5, ChunkOrigin(3, ms(10)), True)
    options: dict[str, Any] = {"remaining": 4, "is_whole": False, "violations": {}, **more}
    journal.action(now, source, np.full(2, 0.5), **options)


def test_an_action_is_noted_with_where_it_comes_from(tmp_path: Path) -> None:
    journal, log = journal_of(tmp_path / "e.jsonl")
    action(ms(50), journal, violations={"step": 1})
    log.close()

    assert lines_of(tmp_path / "e.jsonl") == [
        {
            "event": "action",
            "at_ms": 50.0,
            "timestep": 7,
            "chunk": 3,
            "index": 2,
            "age_ms": 40.0,
            "blended": True,
            "whole": False,
            "remaining": 4,
            "command": [0.5, 0.5],
            "guard": {"step": 1},
        }
    ]


def test_a_pose_that_is_repeated_is_noted_once_until_the_robot_moves(tmp_path: Path) -> None:
    journal, log = journal_of(tmp_path / "e.jsonl")
    for instant in (1, 2):
        journal.hold(ms(instant), np.zeros(2))
    journal.hold(ms(3), np.ones(2))
    action(ms(50), journal)
    journal.hold(ms(60), np.ones(2))
    log.close()

    events = [(line["event"], line["at_ms"]) for line in lines_of(tmp_path / "e.jsonl")]
    assert events == [("hold", 1.0), ("hold", 3.0), ("action", 50.0), ("hold", 60.0)]


def test_only_a_flush_that_costs_actions_is_noted(tmp_path: Path) -> None:
    journal, log = journal_of(tmp_path / "e.jsonl")
    journal.flush(0, 0, "cut")
    journal.flush(0, 3, "cut")
    log.close()

    assert [line["actions"] for line in lines_of(tmp_path / "e.jsonl")] == [3]


def test_without_a_log_nothing_is_noted() -> None:
    journal = Journal(None)

    action(0, journal)
    journal.hold(0, np.zeros(2))
    journal.fault(None, "act", OSError("gone"))
    journal.overrun(Tick(number=1, scheduled=0, started=5, skipped=0))
    journal.connected(0, None)
    journal.opened(0, {})
    journal.end(0, {})
    journal.flush(0, 1, "cut")
