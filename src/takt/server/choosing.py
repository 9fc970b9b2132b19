"""Chooses a formation aside of a running server: in a process that steps back for everybody else.

Simulations take seconds to minutes of a core, and lanes need their cores now. So the choice is made
by one process with the lowest priority there is, within a time after which its answer would be
stale; giving it up ends the process at once, and so does the end of the server.

Start reading at :func:`choose_aside`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import threading
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import TypeAlias

from takt.errors import ConfigError
from takt.server.composition import DevicePlan
from takt.server.formation_choice import Choice, Load, choose_formation
from takt.sim.knee import serially
from takt.sim.shapes import Shape
from takt.units import SECOND, Nanos, to_seconds

__all__ = ["choose_aside"]

_WITHIN: Nanos = 300 * SECOND
"""Time a choice may take: five times that at the start, where it has all cores to itself."""
_GRACE: Nanos = 60 * SECOND
"""Time beyond it after which the process hangs."""
_LOWEST = 19

_Answer: TypeAlias = "Choice | str"
"""What the process says: the choice, or why there is none."""


async def choose_aside(
    load: Load, device: DevicePlan, present: Shape, *, within: Nanos = _WITHIN
) -> Choice:
    """Choose as :func:`~takt.server.formation_choice.choose_formation` does, disturbing nobody.

    Cancelling it ends the process.

    Args:
        load: What the device is to carry.
        device: Its discipline and its rule for late requests.
        present: The shape it is driven in.
        within: Time the choice may take.

    Raises:
        ConfigError: No choice can be made, or the process ended or hung over it.
    """
    # A fork would take the supervisor's sockets and signal handlers along.
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_choose, args=(theirs, load, device, present, within), daemon=True
    )
    try:
        await asyncio.to_thread(_start, process)
        theirs.close()
        return await _answer(ours, within + _GRACE)
    finally:
        await asyncio.shield(asyncio.to_thread(_end, process))
        ours.close()


async def _answer(connection: Connection, within: Nanos) -> Choice:
    loop = asyncio.get_running_loop()
    is_there = asyncio.Event()
    loop.add_reader(connection.fileno(), is_there.set)
    try:
        await asyncio.wait_for(is_there.wait(), to_seconds(within))
        answer: _Answer = connection.recv()
    except TimeoutError:
        raise ConfigError("the simulation hung") from None
    except EOFError:
        raise ConfigError("the simulation ended without an answer") from None
    finally:
        loop.remove_reader(connection.fileno())
    if isinstance(answer, str):
        raise ConfigError(answer)
    return answer


def _start(process: SpawnProcess) -> None:
    process.start()
    assert process.pid is not None
    # From outside, at once: the process needs a core for a second before it can do so itself.
    with contextlib.suppress(OSError):  # kernels may forbid it; being nice must do then
        os.setpriority(os.PRIO_PROCESS, process.pid, _LOWEST)
        os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))


def _end(process: SpawnProcess) -> None:
    if process.pid is not None:
        process.kill()
        process.join()


# In the process


def _choose(
    connection: Connection, load: Load, device: DevicePlan, present: Shape, within: Nanos
) -> None:
    # A Ctrl-C at the terminal reaches the whole group; the supervisor decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(connection,), name="lifeline", daemon=True).start()
    gc.disable()  # a simulation makes no cycles worth collecting before its process ends
    answer: _Answer
    try:
        answer = choose_formation(load, device, serially, present=present, within=within)
    except ConfigError as error:
        answer = str(error)
    with contextlib.suppress(OSError):  # nobody waits for it any more
        connection.send(answer)


def _end_with(connection: Connection) -> None:
    """End when the supervisor does: its end of the connection closes."""
    with contextlib.suppress(EOFError, OSError):
        connection.recv()
    os._exit(0)
