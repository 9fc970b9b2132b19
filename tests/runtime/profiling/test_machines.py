"""Devices that can be measured."""

import pytest

from takt.core.profile import Work
from takt.core.request import Stage
from takt.errors import ConfigError, InvariantError
from takt.policies.interface import Placement
from takt.runtime.profiling.bench import Bench
from takt.runtime.profiling.machines import (
    CpuMachine,
    PacedMachine,
    shapes_digest,
    sleep_until,
)
from takt.runtime.profiling.median import Enough
from takt.schema.serving import ServedModel
from takt.testing.clock import ManualClock
from takt.units import SECOND, ms

PI0 = ServedModel(name="pi0", policy="paced:pi0")
ECHO = ServedModel(name="echo", policy="echo", options={"latency_ms": 4.0})


def test_the_clock_of_a_paced_device_shows_the_end_of_each_launch() -> None:
    waited: list[int] = []
    machine = PacedMachine("rtx-pro-6000", wait=waited.append)
    (loaded,) = machine.load([PI0])
    work = Work("pi0", Stage.PREFIX, 0, 1, 188)

    median = Bench(machine, {work: loaded}, Enough()).alone(work)
    machine.close()

    assert machine.now() == 7 * median.value  # the first run does not count
    assert waited == [median.value * run for run in range(1, 8)]


def test_where_nothing_runs_nothing_ends() -> None:
    machine = PacedMachine("rtx-pro-6000")
    machine.load([PI0])

    with pytest.raises(InvariantError, match="nothing runs on the paced device"):
        machine.next_end()
    machine.close()


def test_a_stranger_says_that_it_is_one_and_every_device_that_it_was_paced() -> None:
    named, stranger = PacedMachine("h100"), PacedMachine("h100", 3)

    assert named.identity().device == "paced h100"
    assert stranger.identity().device == "paced h100, stranger 3"
    assert stranger.identity().engine == "paced"
    assert named.shares[-1] == named.units == 132
    named.close()
    stranger.close()


def test_a_real_policy_is_no_stand_in() -> None:
    machine = PacedMachine("h100")

    with pytest.raises(ConfigError):
        machine.load([ECHO])
    machine.close()


def test_waiting_takes_what_the_device_is_ahead_of_the_clock() -> None:
    clock = ManualClock(SECOND)
    slept: list[float] = []
    wait = sleep_until(clock.now, slept.append)

    wait(ms(20))
    clock.advance(ms(50))
    wait(ms(40))
    wait(ms(80))

    assert slept == [pytest.approx(0.02), pytest.approx(0.03)]


def test_cores_run_the_launches_of_a_worker() -> None:
    machine = CpuMachine(Placement(kv_slots=64))
    (loaded,) = machine.load([ECHO])
    work = Work("echo", Stage.PREFIX, 0, 1, 1)

    median = Bench(machine, {work: loaded}, Enough(most_runs=3)).alone(work)
    identity = machine.identity()
    machine.close()

    assert median.value >= ms(2)  # half of the latency is the prefix's
    assert "prefix cores any, denoise cores any" in identity.device
    assert identity.versions.keys() == {"takt", "python", "numpy"}


def test_of_two_models_of_one_architecture_and_other_options_each_has_its_times() -> None:
    machine = CpuMachine(Placement(kv_slots=64))
    slow = ServedModel(name="slow", policy="echo", options={"latency_ms": 9.0})
    twin = ServedModel(name="twin", policy="echo", options={"latency_ms": 4.0})

    loaded = machine.load([ECHO, slow, twin])
    machine.close()

    assert [one.model.architecture for one in loaded] == ["echo", "echo@slow", "echo"]
    assert shapes_digest(ECHO, loaded[0]) != shapes_digest(slow, loaded[1])
