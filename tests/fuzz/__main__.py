"""Does any decoder of foreign bytes do something else than decode or refuse?

    python -m tests.fuzz [TARGET ...] --seconds 300 --seed 1 --out benchmarks/results/fuzz.json

Every target (``tests/fuzz/targets.py``) is fed with golden messages, damaged by the seed, for the
given processor time. A target fails when anything but its promised refusals escapes, when an
input takes two seconds or 256 MiB; the input is saved under ``--save`` and the exit status is 1.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks._record import circumstances, write
from tests.fuzz.campaign import Campaign
from tests.fuzz.targets import TARGETS


@dataclass(slots=True)
class Budget:
    """Processor time of one target, beginning at its first input."""

    seconds: float
    end: float | None = None

    def is_spent(self, _: int) -> bool:
        now = time.process_time()
        if self.end is None:
            self.end = now + self.seconds
        return now >= self.end


def run_target(name: str, options: argparse.Namespace) -> dict[str, object]:
    campaign = Campaign(
        target=TARGETS[name], seed=options.seed, save_to=options.save and options.save / name
    )
    campaign.run(until=Budget(options.seconds).is_spent)
    report = campaign.report()
    state = f"{len(campaign.failures)} FAILED" if campaign.failures else "ok"
    sys.stdout.write(
        f"{name:20} {campaign.inputs:9} inputs, {campaign.decoded:8} decoded, "
        f"max {report['max_ms']:>9} ms, {report['max_growth_kib']:>9} KiB  {state}\n"
    )
    for failure in campaign.failures[:5]:
        sys.stdout.write(f"    {failure}\n")
    return report


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], default=[], metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=20.0, help="processor time per target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="where the results go, as JSON")
    parser.add_argument("--save", type=Path, help="folder for inputs that failed")
    return parser.parse_args()


def main() -> int:
    options = read_options()
    reports = {name: run_target(name, options) for name in options.targets or TARGETS}
    if options.out is not None:
        facts = circumstances(seed=options.seed, packages=["numpy"])
        result = {"circumstances": facts, "cpu_seconds": options.seconds, "targets": reports}
        write(options.out, result)
    return int(any(report["failures"] for report in reports.values()))


if __name__ == "__main__":
    sys.exit(main())
