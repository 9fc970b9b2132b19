"""Every request of a benchmark as a line of CSV.

Columns: epoch and seed; robot and model; ``sent_ms`` since the epoch began, by the robot's
schedule; ``due_ms`` and ``latency_ms`` since it was sent, the latter empty when no chunk came;
``outcome``; ``met`` and ``on_time``, 1 or 0; then the parts of the latency in milliseconds.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from takt.cli.benching.figures import EpochResult
from takt.cli.driving.robot_run import RobotRun
from takt.cli.driving.time_split import PARTS
from takt.errors import ConfigError
from takt.files import replacing
from takt.units import Nanos, to_ms

__all__ = ["COLUMNS", "write_csv"]

COLUMNS = (
    *("epoch", "seed", "robot", "model", "sent_ms", "due_ms", "latency_ms", "outcome", "met"),
    "on_time",
    *(f"{part.replace(' ', '_')}_ms" for part in PARTS),
)

_NONE: Mapping[str, Nanos] = {}


def write_csv(epochs: Sequence[EpochResult], path: Path) -> None:
    """Write all requests to ``path``; a file that is there is replaced as a whole.

    Raises:
        ConfigError: It cannot be written.
    """
    try:
        with replacing(path) as fresh, fresh.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(COLUMNS)
            for number, epoch in enumerate(epochs, 1):
                for part in epoch.parts:
                    for run in part.runs:
                        rows.writerows(
                            [number, epoch.seed, *row] for row in _requests(run, part.start)
                        )
    except OSError as error:
        raise ConfigError(f"--csv {path}: {error.strerror}") from None


def _requests(run: RobotRun, start: Nanos) -> Iterator[list[object]]:
    splits = iter(run.splits)
    for record in run.records:
        split = next(splits) if record.answered is not None else _NONE
        yield [
            run.name,
            record.model,
            _ms(record.sent - start),
            _ms(record.due - record.sent),
            "" if record.latency is None else _ms(record.latency),
            record.outcome,
            int(record.is_met),
            int(record.is_on_time),
            *(_ms(split[part]) if part in split else "" for part in PARTS),
        ]


def _ms(duration: Nanos) -> float:
    return round(to_ms(duration), 3)
