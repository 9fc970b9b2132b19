"""Small fleets with round numbers, for the tests of the simulator and of what reports on it."""

from dataclasses import replace
from typing import Any

from takt.core.model import Model
from takt.core.profile import Profile, Work
from takt.core.request import Stage
from takt.core.trace import Setup
from takt.sim.fleet import Fleet, RobotGroup
from takt.sim.network import ConstantNetwork, LogNormalNetwork, Network
from takt.units import ms

PREFIX_MS = {1: 10, 2: 16}
DENOISE_MS = {1: 20, 2: 24}
UP_MS, DOWN_MS = 2, 3
CONSTANT = ConstantNetwork(up_ms=UP_MS, down_ms=DOWN_MS)
JITTERY = LogNormalNetwork(median_ms=2.0, sigma=0.5, burst_probability=0.01)


def model_of(name: str = "pi0", *, slo_ms: float = 1_000) -> Model:
    return Model(
        name=name,
        architecture=name,
        slo=ms(slo_ms),
        prefix_sizes=tuple(PREFIX_MS),
        denoise_sizes=tuple(DENOISE_MS),
    )


def profile_of(*models: Model) -> Profile:
    """A device of one share; two launches side by side run at half their speed."""
    works = {
        Work(model.architecture, stage, 0, size, 1): ms(time)
        for model in models
        for stage, times in ((Stage.PREFIX, PREFIX_MS), (Stage.DENOISE, DENOISE_MS))
        for size, time in times.items()
    }
    beside = {(one, other): 2.0 for one in works for other in works if one.stage is not other.stage}
    return Profile(units=1, shares=(1,), solo=works, slowdown=beside)


def setup_of(*models: Model, formation: str = "lockstep") -> Setup:
    loaded = models or (model_of(),)
    return Setup(models=loaded, profile=profile_of(*loaded), formation=formation)


def fleet_of(*groups: RobotGroup, setup: Setup | None = None, network: Network = CONSTANT) -> Fleet:
    """A fleet on one device, ``gpu``."""
    return Fleet(devices={"gpu": setup or setup_of()}, robots=groups, network=network)


def group_of(
    count: int = 1,
    *,
    model: str = "pi0",
    device: str = "gpu",
    **how: Any,  # noqa: ANN401 - fields of RobotGroup
) -> RobotGroup:
    """Robots that ask twice a second unless told otherwise."""
    usual = RobotGroup(model=model, count=count, device=device, rate_hz=2.0)
    return replace(usual, **{"name": "", **how})
