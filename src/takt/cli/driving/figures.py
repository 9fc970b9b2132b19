"""What a run against a real server showed, as plain values and as sentences.

::

    simulated               always false: every figure was measured, on the robots' clock
    paced                   whether launches waited for the modelled time of a GPU and computed
                            nothing
    seconds                 time the robots sent
    seed                    of the robots' phases
    robots                  population
    broken_off              whether somebody stopped the run before its end
    server_away             null when no robot lost the server; otherwise
                              robots            how many robots lost it
                              from_s            when the first observation without a server was
                                                sent, seconds into the run
                              back_after_s      longest time from such an observation to the next
                                                chunk; null when none came
                              not_served_again  of these robots, those that were not served again
                              for_good          whether the server was gone at the end: nobody was
                                                served by anything sent after it was lost. Then the
                                                others tell of this alone, and the exit status is 1
    issued ... latency_ms   the served part (below), over all requests
    worst_robot             its name as ``robot`` and its served part; null when nothing was issued
    starvation              starved_ticks, ticks, share; over all robots
    models                  by name: slo_ms, robots and the served part
    stages_ms               p50, p90, p99, max by name: the network, and what the server told
    observation_bytes       of those answered, on average: as ``sent``, and ``raw``, with every
                            image as the robot had it; null when none was
    errors                  requests without an answer by the reason's code
    checked_chunks          chunks compared with the observation they answer
    foreign_chunks          of these, chunks that belong to another observation
    lag_ms                  how late this computer itself was in sending

The *served part* of a group of requests::

    issued                  requests sent: the denominator of both shares
    attainment              share answered within the model's slo, 0..1; null when none was issued
    on_time_share           share answered by the time the robot's queue ran dry; likewise
    outcomes                requests by outcome; every outcome is present
    latency_ms              p50, p90, p99, max of the answered ones; null when none was
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from takt.cli.driving.outage import away_sentence, check_server
from takt.cli.driving.robot import DrivenRobot
from takt.cli.driving.robot_run import RobotRun
from takt.core.attainment import Attainment, Quantiles, Summary, summarise
from takt.errors import InvariantError, TaktError
from takt.sim.report import quantiles_in_ms, served_figures
from takt.units import Nanos, to_ms, to_seconds

__all__ = ["DriveFailedError", "Driven", "check_run", "figures_of", "quantiles_ms", "sentences"]


Driven: TypeAlias = DrivenRobot | RobotRun
"""A robot that has finished, of this process or of another one."""


class DriveFailedError(TaktError):
    """The server served nobody."""


def figures_of(
    robots: Sequence[Driven],
    *,
    duration: Nanos,
    seed: int,
    broken_off: bool = False,
    server_away: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The figures of a run.

    Args:
        robots: All of them, finished.
        duration: How long they sent.
        seed: Of the run.
        broken_off: Whether it was stopped before its end.
        server_away: What :func:`~takt.cli.driving.outage.server_away_in` found.
    """
    summary = summarise(record for robot in robots for record in robot.records)
    errors = sum((robot.errors for robot in robots), Counter[str]())
    return {
        "simulated": False,
        "paced": any(robot.behaviour.is_paced for robot in robots),
        "seconds": round(to_seconds(duration), 3),
        "seed": seed,
        "robots": len(robots),
        "broken_off": broken_off,
        "server_away": server_away,
        **served_figures(summary.total),
        "worst_robot": _worst(summary),
        "starvation": _starvation(robots),
        "models": _models(robots, summary),
        "stages_ms": _stages(robots),
        "observation_bytes": _observation_bytes(robots),
        "errors": {code: errors[code] for code in sorted(errors)},
        "checked_chunks": sum(robot.checked for robot in robots),
        "foreign_chunks": sum(robot.foreign for robot in robots),
        "lag_ms": quantiles_ms(lag for robot in robots for lag in robot.lags),
    }


def sentences(figures: dict[str, Any]) -> list[str]:
    """The figures for a person, most important first."""
    slos = sorted({part["slo_ms"] for part in figures["models"].values()})
    promise = f"{slos[0]:g} ms" if len(slos) == 1 else "their model's slo"
    met = round((figures["attainment"] or 0) * figures["issued"])
    on_time = round((figures["on_time_share"] or 0) * figures["issued"])
    starvation = figures["starvation"]
    mark = "paced: " if figures["paced"] else ""
    lines = [
        f"{mark}served {met} of {figures['issued']} requests within {promise}"
        f" ({_percent(figures['attainment'])}), as the robots measured it",
        f"on time, before the robot ran out of actions: {on_time} of {figures['issued']}"
        f" ({_percent(figures['on_time_share'])}){_FIRST_ANSWERS if on_time < met else ''}",
        _latency_sentence(figures),
        f"starvation: {_percent(starvation['share'])} of control ticks found no action"
        f" ({starvation['starved_ticks']} of {starvation['ticks']})",
        f"requests without an answer: {_listed(figures['errors']) or 'none'}",
    ]
    away = away_sentence(figures)
    if away is not None:
        lines.insert(1, away)
    if figures["observation_bytes"]:
        lines.append(_bytes_sentence(**figures["observation_bytes"]))
    if figures["checked_chunks"]:
        lines.append(
            f"chunks checked against the observation they answer: {figures['checked_chunks']},"
            f" foreign: {figures['foreign_chunks']}"
        )
    if figures["paced"]:
        lines.append(
            "paced: launches waited for the modelled time of a GPU and computed nothing; sockets,"
            " gateway, scheduler and clock were real"
        )
    if figures["broken_off"]:
        lines.append(f"the run was broken off after {figures['seconds']:g} s")
    return lines


_FIRST_ANSWERS = "; a robot's first answer is late unless it comes within a control tick"
"""Why fewer answers are on time than within the slo: at first a robot has nothing to execute."""


def check_run(figures: dict[str, Any]) -> None:
    """Refuse a run that shows a fault.

    Raises:
        InvariantError: A robot was sent a chunk that is not its own.
        DriveFailedError: Nothing was served, although the run went on to its end.
        ServerGoneError: The server went away in the middle and did not come back.
    """
    foreign = figures["foreign_chunks"]
    if foreign:
        raise InvariantError(f"{foreign} chunks belonged to another observation; please report it")
    if not figures["outcomes"]["served"] and not figures["broken_off"]:
        reasons = _listed(figures["errors"])
        raise DriveFailedError(f"nothing was served: {reasons or 'no robot sent anything'}")
    check_server(figures)


def _worst(summary: Summary) -> dict[str, Any] | None:
    if summary.worst_robot is None:
        return None
    return {"robot": summary.worst_robot, **served_figures(summary.by_robot[summary.worst_robot])}


def _starvation(robots: Sequence[Driven]) -> dict[str, Any]:
    starved = sum(robot.starved_ticks for robot in robots)
    ticks = sum(robot.ticks for robot in robots)
    return {
        "starved_ticks": starved,
        "ticks": ticks,
        "share": round(starved / ticks, 5) if ticks else None,
    }


def _models(robots: Sequence[Driven], summary: Summary) -> dict[str, Any]:
    slos = {robot.behaviour.model: robot.behaviour.slo for robot in robots}
    counts = Counter(robot.behaviour.model for robot in robots)
    nothing = Attainment.of([])
    return {
        model: {
            "slo_ms": to_ms(slos[model]),
            "robots": counts[model],
            **served_figures(summary.by_model.get(model, nothing)),
        }
        for model in sorted(slos)
    }


def _stages(robots: Sequence[Driven]) -> dict[str, Any]:
    durations: dict[str, list[Nanos]] = {}
    for robot in robots:
        for stages in robot.stages:
            for name, took in stages.items():
                durations.setdefault(name, []).append(took)
    return {name: quantiles_ms(taken) for name, taken in durations.items()}


def _observation_bytes(robots: Sequence[Driven]) -> dict[str, int] | None:
    answered = sum(len(robot.stages) for robot in robots)
    sent = sum(robot.sent_bytes for robot in robots)
    raw = sum(robot.raw_bytes for robot in robots)
    return {"sent": round(sent / answered), "raw": round(raw / answered)} if sent else None


def quantiles_ms(durations: Iterable[Nanos]) -> dict[str, float] | None:
    """p50, p90, p99 and max in milliseconds; None when there are no durations."""
    quantiles = Quantiles.of(durations)
    return None if quantiles is None else quantiles_in_ms(quantiles)


def _latency_sentence(figures: dict[str, Any]) -> str:
    latency = figures["latency_ms"]
    if latency is None:
        return "answers: none"
    cuts = ", ".join(f"{name} {latency[name]:.1f} ms" for name in ("p50", "p90", "p99", "max"))
    return f"answers: {cuts}"


def _bytes_sentence(*, sent: int, raw: int) -> str:
    sentence = f"observations: {sent / 1000:.1f} kB each"
    if sent == raw:
        return sentence
    return (
        f"{sentence}, {raw / sent:.1f} times less than their images as arrays ({raw / 1000:.1f} kB)"
    )


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}"
