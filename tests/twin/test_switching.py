"""Formations change while a device serves: decisions stay the same in both drivers, and replay."""

import dataclasses
import json
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.driving import Rig
from tests.twin.test_twin import FORMED, LOCKSTEP, happenings, setups
from tests.twin.twins import Arrival, Happenings, simulated, worked

from takt.core.model import Model
from takt.core.request import Stage
from takt.core.trace import Setup, replay
from takt.runtime.events import DrivingOffered
from takt.runtime.limits import narrowed
from takt.runtime.loop import WorkerLoop

FLOWING = dataclasses.replace(LOCKSTEP, formation="flowing")


def limited(setup: Setup, limit: int | None) -> Setup:
    """``setup`` with smaller batches, as a formation's shape may ask for."""
    models: tuple[Model, ...] = tuple(narrowed(model, limit, limit) for model in setup.models)
    return dataclasses.replace(setup, models=models)


offers = st.lists(
    st.tuples(st.integers(0, 250), st.builds(limited, setups, st.sampled_from([None, 1, 2]))),
    max_size=5,
).map(lambda offers: sorted(offers, key=lambda offer: offer[0]))

switching = st.builds(dataclasses.replace, happenings, offers=offers)


@given(setup=setups, happenings=switching)
def test_both_drivers_switch_alike_and_what_they_did_replays(
    setup: Setup, happenings: Happenings
) -> None:
    trace = worked(setup, happenings)

    assert trace == simulated(setup, happenings)
    assert list(replay(trace)) == trace


@given(setup=setups, happenings=switching)
def test_every_request_ends_exactly_once_over_switches(
    setup: Setup, happenings: Happenings
) -> None:
    lines = [json.loads(line) for line in worked(setup, happenings)[1:]]
    ended = Counter(line["seq"] for line in lines if line["event"] == "ended")
    switched = [line for line in lines if line["event"] == "switched"]

    assert ended == Counter(range(1, len(happenings.arrivals) + 1))
    assert bool(switched) == bool(happenings.offers)  # at the latest when all have ended
    assert len(switched) <= len(happenings.offers)


@given(happenings=switching)
def test_nothing_is_under_way_at_a_switch(happenings: Happenings) -> None:
    under_way, running = set[int](), 0
    for line in map(json.loads, worked(LOCKSTEP, happenings)[1:]):
        if line["event"] == "switched":
            assert not under_way
            assert not running
        elif line["event"] == "submit":
            under_way.add(line["seq"])
        elif line["event"] == "ended":
            under_way.remove(line["seq"])
        running += len(line.get("launches", ())) - (line["event"] == "finish")


def test_a_device_that_is_never_idle_keeps_its_formation() -> None:
    always = [Arrival(at=10 * turn, session=f"arm {turn % 3}") for turn in range(30)]
    trace = worked(LOCKSTEP, Happenings(arrivals=always, offers=[(15, FLOWING)]))

    last_submit = max(i for i, line in enumerate(trace) if '"event":"submit"' in line)
    [switched] = [i for i, line in enumerate(trace) if '"event":"switched"' in line]
    assert switched > last_submit


def test_a_later_offer_takes_the_place_of_one_that_waits() -> None:
    happenings = Happenings(
        arrivals=[Arrival(at=0)], offers=[(1, FLOWING), (2, FORMED[0]), (3, FORMED[2])]
    )

    trace = worked(LOCKSTEP, happenings)

    [switched] = [json.loads(line) for line in trace if '"event":"switched"' in line]
    assert Setup.from_json(switched["setup"]).to_json() == FORMED[2].to_json()


class SwitchesAtOnce(WorkerLoop):
    """Does not mind what is under way in the lanes' queues."""

    def _switch(self, setup: Setup, now: int) -> None:
        if not self._running:
            self._scheduler = setup.scheduler()
            self._offered = None


def test_a_switch_with_requests_waiting_shows() -> None:
    """The prefix launch ends in the instant of the offer, and its request waits to be denoised."""
    [end] = [
        line["at"]
        for line in map(json.loads, worked(LOCKSTEP, Happenings(arrivals=[Arrival(at=0)])))
        if line.get("event") == "finish" and line["lane"][1] == Stage.PREFIX
    ]
    happenings = Happenings(arrivals=[Arrival(at=0)], offers=[(end, FLOWING)])

    true = simulated(LOCKSTEP, happenings)
    assert worked(LOCKSTEP, happenings) == true
    assert worked(LOCKSTEP, happenings, loop_class=SwitchesAtOnce) != true


def test_an_offer_waits_together_with_models_that_come_or_go() -> None:
    rig = Rig()
    rig.submit()
    changed = rig.setup_changed()
    rig.step(changed)
    held_back = rig.submit(session="b")
    rig.step(DrivingOffered(dataclasses.replace(changed.setup, formation="flowing")))
    assert rig.loop.awaits_change

    rig.run_out()

    assert not rig.loop.awaits_change
    assert rig.outcomes()[held_back].name == "SERVED"
    assert '"formation":"flowing"' in [line for line in rig.trace if "takt_trace" in line][-1]


def test_models_that_come_or_go_replace_an_offer_that_waits() -> None:
    rig = Rig()
    rig.submit()
    rig.step(DrivingOffered(dataclasses.replace(rig.setup_changed().setup, formation="flowing")))
    rig.step(rig.setup_changed())

    rig.run_out()

    assert not any('"event":"switched"' in line for line in rig.trace)
    assert not rig.loop.awaits_change
