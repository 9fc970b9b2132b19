"""Feeds one decoder with damaged messages and keeps account of what it did with them."""

import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.mutation import Mutator
from tests.fuzz.targets import Target

__all__ = ["MAX_GROWTH_BYTES", "MAX_SECONDS", "Campaign"]

MAX_SECONDS = 2.0
"""An input that takes longer has failed: it holds up every robot behind it."""
MAX_GROWTH_BYTES = 256 * 2**20
"""An input that takes more memory has failed, however short it was."""
_TRACED_EVERY = 8
"""Every so many inputs the memory is measured instead of the time; tracing slows Python down."""


@dataclass(slots=True, kw_only=True)
class Campaign:
    """One run of one target.

    The same seed makes the same inputs in the same order.
    """

    target: Target
    seed: int
    save_to: Path | None = None
    """Folder for inputs that failed."""
    inputs: int = 0
    decoded: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    """By class of the refusal."""
    failures: list[str] = field(default_factory=list[str])
    """What went wrong, with the number of the input."""
    max_seconds: float = 0.0
    max_growth_bytes: int = 0
    max_growth_ratio: float = 0.0
    """Memory taken per byte of the input, of inputs of a kibibyte and more."""

    def run(self, *, until: Callable[[int], bool]) -> None:
        """Feed inputs until ``until`` says so of their number."""
        mutator = Mutator(self.target.corpus(), self.target.words, self.seed)
        while not until(self.inputs):
            data = mutator.next()
            self.inputs += 1
            fault = self._traced(data) if self.inputs % _TRACED_EVERY == 0 else self._timed(data)
            if fault is not None:
                self._fail(data, fault)

    def _timed(self, data: bytes) -> str | None:
        begin = time.thread_time()
        fault = self._feed(data)
        took = time.thread_time() - begin
        self.max_seconds = max(self.max_seconds, took)
        return f"took {took:.3f} s" if took > MAX_SECONDS else fault

    def _traced(self, data: bytes) -> str | None:
        tracemalloc.start()
        try:
            fault = self._feed(data)
            growth = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        self.max_growth_bytes = max(self.max_growth_bytes, growth)
        if len(data) >= 1024:
            self.max_growth_ratio = max(self.max_growth_ratio, growth / len(data))
        return f"took {growth} bytes" if growth > MAX_GROWTH_BYTES else fault

    def _feed(self, data: bytes) -> str | None:
        """Decode one input; what went wrong, if anything did."""
        try:
            self.target.decode(data)
        except self.target.refusals as refusal:
            self.refused[type(refusal).__name__] += 1
        except Exception as error:  # noqa: BLE001 - which ones escape is the question
            return f"raised {type(error).__name__}: {error}"
        else:
            self.decoded += 1
        return None

    def _fail(self, data: bytes, fault: str) -> None:
        self.failures.append(f"input {self.inputs}: {fault}")
        if self.save_to is not None:
            self.save_to.mkdir(parents=True, exist_ok=True)
            (self.save_to / f"seed{self.seed}-input{self.inputs}.bin").write_bytes(data)

    def report(self) -> dict[str, object]:
        """The account, ready for JSON."""
        return {
            "inputs": self.inputs,
            "decoded": self.decoded,
            "refused": dict(sorted(self.refused.items())),
            "failures": self.failures,
            "max_ms": round(self.max_seconds * 1e3, 3),
            "max_growth_kib": round(self.max_growth_bytes / 1024, 1),
            "max_growth_per_input_byte": round(self.max_growth_ratio, 1),
        }
