"""Chosen formations follow the robots that ask; named ones and busy devices keep theirs."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from tests.server.test_formation_choice import DEVICE, LOAD

from takt.errors import ConfigError
from takt.server.children import Child, ChildSpec
from takt.server.composition import DevicePlan
from takt.server.formation_choice import Candidate, Choice, ChosenDevice, Load
from takt.server.reevaluation import Reevaluation
from takt.sim.shapes import Shape
from takt.units import SECOND

DWELL = 12 * SECOND
LOCKSTEP = Shape(formation="lockstep", prefix_limit=2, denoise_limit=4)
FLOWING = Shape(formation="flowing", options={"gathering": 4}, prefix_limit=1, denoise_limit=4)
IN_LOCKSTEP = {
    "formation": "lockstep",
    "formation_options": {},
    "prefix_limit": 2,
    "denoise_limit": 4,
}


def choice(
    shape: Shape, carries: int, present: Shape, present_carries: int, *, is_complete: bool
) -> Choice:
    return Choice(
        shape=shape,
        batches=(shape.prefix_limit, shape.denoise_limit),
        candidates=(Candidate(shape, carries, None),),
        declared=3,
        took=SECOND,
        is_complete=is_complete,
        present=Candidate(present, present_carries, None),
    )


class FakeChild:
    """Remembers what it was told."""

    def __init__(self, name: str, config: dict[str, Any]) -> None:
        self.spec = ChildSpec(name=name, command=(), config=config)
        self.config = config
        self.told: list[Mapping[str, Any]] = []
        self.runs = True

    def tell(self, command: Mapping[str, Any]) -> bool:
        self.told.append(command)
        return self.runs


class Scene:
    """A chosen device, a named one, and the gateway that sends to both."""

    def __init__(self, *, carries: int = 20, present_carries: int = 10) -> None:
        models = [{"name": "pi0"}]
        self.worker = FakeChild("worker-0", {"models": models, **IN_LOCKSTEP})
        self.named = FakeChild("worker-1", {"models": [{"name": "other"}], **IN_LOCKSTEP})
        addresses = [{"name": "worker-0"}, {"name": "worker-1"}]
        self.gateway = FakeChild("gateway-0", {"gateway": {"workers": addresses}})
        self.said: list[tuple[str, Mapping[str, Any]]] = []
        self.asked: list[tuple[Load, DevicePlan, Shape]] = []
        self.verdict: Shape | ConfigError = FLOWING
        self.carries, self.present_carries = carries, present_carries
        self.is_slow, self.is_complete = False, True
        self.meanwhile: Callable[[], None] = lambda: None
        self.num_cancelled = 0
        self.now = 0
        self.formations = Reevaluation(
            {"worker-0": ChosenDevice(DEVICE, LOAD, LOCKSTEP)},
            dwell=DWELL,
            choose=self.choose,
            clock=lambda: self.now,
        )
        workers = cast("list[Child]", [self.worker, self.named])
        say = lambda name, event: self.said.append((name, event))  # noqa: E731
        self.formations.attend(workers, cast("list[Child]", [self.gateway]), say)

    async def choose(self, load: Load, device: DevicePlan, present: Shape) -> Choice:
        self.asked.append((load, device, present))
        self.meanwhile()
        try:
            if self.is_slow:
                await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        if isinstance(self.verdict, ConfigError):
            raise self.verdict
        return choice(
            self.verdict,
            self.carries,
            present,
            self.present_carries,
            is_complete=self.is_complete,
        )

    def hear(self, child: FakeChild, **event: object) -> Mapping[str, Any] | None:
        return self.formations.heard(cast("Child", child), event)

    async def count(self, robots: int, seconds: int = 0, model: str = "pi0") -> None:
        """The gateway says so, now and until so many seconds later."""
        for _ in range(seconds + 1):
            models = {model: {"robots": robots, "requests": 3 * robots}} if robots else {}
            assert self.hear(self.gateway, event="robots", over_ms=1000.0, models=models) is None
            self.formations.look(self.now)
            for _ in range(3):
                await asyncio.sleep(0)  # a choice begins, and ends unless it is slow
            self.now += SECOND
        self.now -= SECOND

    def switched(self) -> None:
        [told] = self.commands()[-1:]
        fields = {name: value for name, value in told.items() if name != "command"}
        assert self.hear(self.worker, event="formation_switched", **fields) is None

    def commands(self) -> list[Mapping[str, Any]]:
        return [it for it in self.worker.told if it["command"] == "drive_in"]

    def events(self) -> list[str]:
        return [event["event"] for _, event in self.said]


def played(play: Callable[[Scene], Any], **options: int) -> Scene:
    async def main() -> Scene:
        scene = Scene(**options)
        await play(scene)
        return scene

    return asyncio.run(main())


async def _change(scene: Scene) -> None:
    await scene.count(3, seconds=12)


def test_a_lasting_change_leads_to_another_choice_for_the_robots_that_ask() -> None:
    scene = played(_change)

    [(load, device, present)] = scene.asked
    assert [(group.count, group.rate_hz) for group in load.robots] == [(3, 3.0)]
    assert device is DEVICE
    assert present == LOCKSTEP
    [(name, said)] = scene.said
    assert name == "worker-0"
    assert said["because"] == "3 robots (pi0 3) ask, chosen for 6 robots (pi0 6)"
    assert said["switches"] is True
    assert "flowing (gathering 4)" in said["reason"]


def test_the_worker_is_told_and_its_next_life_begins_as_this_one_was_driven_last() -> None:
    scene = played(_change)
    told = {
        "command": "drive_in",
        "formation": "flowing",
        "options": {"gathering": 4},
        "prefix_limit": 1,
        "denoise_limit": 4,
    }
    assert scene.commands() == [told]
    assert scene.worker.config["formation"] == "lockstep"

    scene.switched()

    assert scene.worker.config["formation"] == "flowing"
    assert scene.worker.config["formation_options"] == {"gathering": 4}
    assert scene.worker.config["prefix_limit"] == 1
    assert "options" not in scene.worker.config
    name, said = scene.said[-1]
    assert (name, said["event"]) == ("worker-0", "formation_switched")
    assert said["before"] == "lockstep, batches up to 2 and 4"
    assert said["after"] == "flowing (gathering 4), batches up to 1 and 4"


def test_a_formation_that_was_named_is_left_alone() -> None:
    async def play(scene: Scene) -> None:
        await scene.count(60, seconds=30, model="other")

    scene = played(play)

    assert scene.asked == []
    assert scene.named.told == []


def test_what_carries_less_than_a_twentieth_more_is_not_worth_a_change() -> None:
    small = played(_change, carries=104, present_carries=100)
    enough = played(_change, carries=105, present_carries=100)

    assert small.commands() == []
    assert small.said[0][1]["switches"] is False
    assert small.said[0][1]["verdict"] == "kept: 100 robots predicted"
    assert len(enough.commands()) == 1


def test_a_choice_that_fails_keeps_the_formation_and_is_not_tried_again_at_once() -> None:
    async def play(scene: Scene) -> None:
        scene.verdict = ConfigError("the simulation hung")
        await scene.count(3, seconds=40)

    scene = played(play)

    assert len(scene.asked) == 1
    assert scene.commands() == []
    assert scene.said[0][1]["verdict"] == "kept: the simulation hung"


def test_a_choice_is_given_up_when_the_population_changes_again() -> None:
    async def play(scene: Scene) -> None:
        scene.is_slow = True
        await scene.count(3, seconds=13)
        await scene.count(12, seconds=4)

    scene = played(play)

    assert scene.num_cancelled == 1
    assert scene.said == []


def test_a_choice_is_given_up_when_the_server_stops() -> None:
    async def play(scene: Scene) -> None:
        scene.is_slow = True
        await scene.count(3, seconds=13)
        running = asyncio.create_task(scene.formations.run())
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert scene.num_cancelled == 1

    played(play)


def test_a_device_that_is_never_idle_keeps_its_formation_and_that_is_said_once() -> None:
    async def play(scene: Scene) -> None:
        await scene.count(3, seconds=60)

    scene = played(play)

    assert scene.events() == ["formation_reconsidered", "formation_waits"]
    assert scene.said[-1][1]["before"] == "lockstep, batches up to 2 and 4"
    assert scene.worker.config["formation"] == "lockstep"


def test_the_time_that_a_choice_takes_is_no_time_that_the_device_was_busy() -> None:
    async def play(scene: Scene) -> None:
        def take_long() -> None:
            scene.now += 20 * DWELL

        scene.meanwhile = take_long
        await scene.count(3, seconds=20)
        assert scene.events() == ["formation_reconsidered"]
        await scene.count(3, seconds=10)
        assert scene.events() == ["formation_reconsidered", "formation_waits"]

    scene = played(play)

    assert scene.said[-1][1]["waited_s"] == 12.0


def test_a_choice_that_was_cut_off_leaves_the_offer_that_waits() -> None:
    async def play(scene: Scene) -> None:
        await scene.count(3, seconds=13)
        scene.verdict, scene.is_complete = LOCKSTEP, False
        await scene.count(9, seconds=13)

    assert [it["formation"] for it in played(play).commands()] == ["flowing"]


def test_an_offer_that_waits_is_taken_back_when_the_next_choice_is_what_is_in_force() -> None:
    async def play(scene: Scene) -> None:
        await scene.count(3, seconds=13)
        scene.verdict = LOCKSTEP
        await scene.count(9, seconds=13)
        scene.switched()

    scene = played(play)

    assert [it["formation"] for it in scene.commands()] == ["flowing", "lockstep"]
    reconsidered, waits = "formation_reconsidered", "formation_waits"
    assert scene.events() == [reconsidered, waits, reconsidered]
    assert scene.worker.config["formation"] == "lockstep"


def test_an_offer_that_comes_into_force_during_the_next_choice_is_taken_back_too() -> None:
    async def play(scene: Scene) -> None:
        await scene.count(3, seconds=13)
        scene.verdict, scene.meanwhile = LOCKSTEP, scene.switched
        await scene.count(9, seconds=13)
        scene.switched()

    scene = played(play)

    assert [it["formation"] for it in scene.commands()] == ["flowing", "lockstep"]
    assert scene.worker.config["formation"] == "lockstep"


def test_a_worker_that_dies_with_an_offer_comes_back_driven_so() -> None:
    scene = played(_change)

    assert scene.hear(scene.worker, event="died", status=-9) is not None

    assert scene.worker.config["formation"] == "flowing"
    assert scene.events()[-1] == "formation_switched"


def test_a_worker_that_does_not_run_comes_back_driven_so() -> None:
    async def play(scene: Scene) -> None:
        scene.worker.runs = False
        await _change(scene)

    assert played(play).worker.config["formation"] == "flowing"


def test_nothing_is_judged_before_every_gateway_has_said_and_after_one_has_died() -> None:
    async def play(scene: Scene) -> None:
        scene.formations.look(0)
        await scene.count(3, seconds=5)
        scene.hear(scene.gateway, event="died", status=-9)
        for _ in range(20):
            scene.now += SECOND
            scene.formations.look(scene.now)

    scene = played(play)

    assert scene.asked == []
    assert scene.gateway.told[0] == {"command": "count_robots", "lately": DWELL // 2}


def test_replicas_share_the_robots_of_their_gateway() -> None:
    async def play(scene: Scene) -> None:
        scene.named.config["models"] = [{"name": "pi0"}]
        await scene.count(20, seconds=12)

    [(load, _, _)] = played(play).asked

    assert [group.count for group in load.robots] == [10]


def test_other_events_pass_as_they_are() -> None:
    scene = played(_change)
    event = {"event": "ready", "models": {}}

    assert scene.hear(scene.worker, **event) == event


@pytest.mark.parametrize("robots", [0, 6, 7, 5])
def test_no_robots_and_small_changes_change_nothing(robots: int) -> None:
    async def play(scene: Scene) -> None:
        await scene.count(robots, seconds=40)

    assert played(play).asked == []
