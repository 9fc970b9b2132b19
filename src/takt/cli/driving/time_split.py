"""Where the time of one answer went, in parts that add up to its latency.

Only durations cross hosts: the server's are of its own clock, the client's of the robot's. So what
the network took is known both ways together, as the round trip less the server's own time, and not
each way for itself. It contains the sockets of both computers and the waking of our own thread.
"""

from __future__ import annotations

from takt.client.answer import Answer
from takt.units import Nanos

__all__ = ["PARTS", "split_of"]

PARTS = {
    "held": "at the robot, which still awaited an earlier answer",
    "sender": "in this client: waking late, encoding, checking",
    "network": "uplink and reply together, with the sockets of both computers",
    "decode": "at the server: decoding and preprocessing",
    "queue": "until the prefix launch: a slot, the link to the worker, the queue",
    "prefix": "the prefix launch",
    "wait": "between the two launches",
    "denoise": "the denoise launch",
    "reply": "at the server after the last launch",
    "server": "at a server that tells no stages",
    "round trip": "to and at a server that tells nothing, and back",
}
"""Every part, in the order in which they happen, and what it is."""

_STAGES = {
    "decode": ("decode", "preprocess"),
    "queue": ("wait", "link", "queue"),
    "prefix": ("prefix",),
    "wait": ("between",),
    "denoise": ("denoise",),
}
"""Parts by the stages Takt tells; its ``wait`` is that for a slot."""


def split_of(answer: Answer, *, latency: Nanos, held: Nanos) -> dict[str, Nanos]:
    """The parts of ``latency``, of :data:`PARTS`, that the answer tells.

    Args:
        answer: What came.
        latency: From the instant the observation was scheduled to the chunk being there.
        held: Part of it that the observation was kept back for an earlier answer.
    """
    ours = {"held": held, "sender": max(0, latency - held - answer.round_trip)}
    if answer.server is None or answer.network is None:
        return {**ours, "round trip": answer.round_trip}
    ours["network"] = answer.network
    if not answer.stages:
        return {**ours, "server": answer.server}
    stages = {
        part: sum(answer.stages.get(name, 0) for name in names) for part, names in _STAGES.items()
    }
    return {**ours, **stages, "reply": max(0, answer.server - sum(stages.values()))}
