"""What ``takt serve`` says of its processes: one line of JSON per event, or sentences."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any, cast

from takt.cli.standard_output import OutputFailedError
from takt.server.log_lines import one_line

__all__ = ["Narrator", "say_choice", "say_choosing", "say_json", "say_stopped"]

log = logging.getLogger(__name__)


def say_choice(reason: str) -> None:
    """Say as JSON which formation was chosen before there was any process."""
    print(json.dumps({"event": "formation_chosen", "reason": reason}), flush=True)


def say_choosing(device: str) -> None:
    """Say in a sentence that a formation is being chosen."""
    print(
        f"simulating formations for device {device}, a minute at most", file=sys.stderr, flush=True
    )


def say_stopped() -> None:
    """Say in a word that no process is left."""
    _print("stopped")


def say_json(paced: str | None, name: str, event: Mapping[str, Any]) -> None:
    """Say one event as JSON.

    Args:
        paced: The devices that only rehearse; None where none does.
        name: The process it comes from.
        event: As :class:`~takt.server.supervisor.Supervisor` tells it.

    Raises:
        OutputFailedError: Nobody reads any more. On a full disk the event goes into the log
            alone: robots are served on.
    """
    mark = {} if paced is None else {"paced": paced}
    line = json.dumps({**event, "process": name, **mark})
    try:
        print(line, flush=True)
    except OutputFailedError as error:
        if error.reader_has_gone:
            raise
        log.warning("not written: event=%s reason=%s", line, error)


class Narrator:
    """Says in sentences what happens to the server's processes.

    Args:
        paced: The devices that only rehearse; None where none does.
    """

    def __init__(self, paced: str | None) -> None:
        self._since = time.monotonic()
        self._failed: set[str] = set()
        self._has_been_ready: set[str] = set()
        self._held_back: list[str] | None = []  # until a gateway listens; None: one has listened
        self._mark = (
            "" if paced is None else f" (paced {paced}: launches wait, nothing is computed)"
        )

    def say(self, name: str, event: Mapping[str, Any]) -> None:
        """Say one event, if a person would want to know."""
        sentence = self._sentence(name, event)
        if event.get("event") == "model_failed" and sentence is not None:
            if sentence in self._failed:
                return  # worker and gateway both say so
            self._failed.add(sentence)
            if self._held_back is not None:
                self._held_back.append(sentence)  # a server that does not start says why by itself
                return
        if event.get("event") == "listening" and name.startswith("gateway"):
            self._say_what_was_held_back()
        if sentence is not None:
            _print(sentence)

    def _say_what_was_held_back(self) -> None:
        sentences, self._held_back = self._held_back or [], None
        for sentence in sentences:
            _print(sentence)

    def _sentence(self, name: str, event: Mapping[str, Any]) -> str | None:
        kind = str(event.get("event"))
        if kind in _OF_GATEWAYS and not name.startswith("gateway"):
            return None  # robots see the gateway; it is ready when all its workers are
        if kind == "ready" and name in self._has_been_ready:
            kind = "ready_again"
        elif kind == "ready":
            self._has_been_ready.add(name)
        template = _SENTENCES.get(kind)
        if template is None:
            return None
        models = cast("list[str]", event.get("models", []))
        scheme = "ws" if event.get("door") == "openpi" else "grpc"
        told = {
            "scheme": scheme,
            "name": name,
            "took": time.monotonic() - self._since,
            "ready": ", ".join(models),
        }
        return template.format_map({**event, **told}) + self._mark


def _print(sentence: str) -> None:
    # Like the log, which goes the same way: where it cannot be written, robots are served all the
    # same.
    with contextlib.suppress(OSError):
        print(one_line(sentence), file=sys.stderr, flush=True)


_OF_GATEWAYS = ("listening", "ready", "draining")
_SENTENCES = {
    "listening": "{door} door at {scheme}://{host}:{port}",
    "ready": "ready after {took:.1f} s: {ready}",
    "ready_again": "{name} is back",
    "draining": "{name} is draining: {reason}",
    "model_failed": "model {model} failed to load: {reason}",
    "worker_lost": "lost {worker}; its robots are told, and it is started again",
    "worker_back": "{worker} is back",
    "hung": "{name} did not answer for {silence_ms:.0f} ms; it is killed and started again",
    "died": "{name} died with status {status}, {deaths_in_a_row} in a row; starting it again in"
    " {restart_in_s:.1f} s",
    "model_added": "{name}: robots may ask for {model}",
    "model_unloaded": "{name}: {model} is unloaded",
    "formation_reconsidered": "{name}: {because}; {verdict}",
    "formation_switched": "{name}: {after} from now on, before {before}",
    "formation_waits": "{name}: not idle for {waited_s:.0f} s, so it keeps {before}",
    "formation_refused": "{name}: keeps its formation: {reason}",
}
