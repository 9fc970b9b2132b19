"""An episode in virtual time: a second of motion, an outage, a hold, a resume."""

from pathlib import Path

from tests.client.rig import Rig, pose_of

from takt.client.episode_log import EpisodeLog
from takt.client.journal import Journal
from takt.client.loop_settings import Hooks, LoopSettings
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import State
from takt.testing import ManualClock
from takt.units import ms, seconds

__all__ = ["write_episode"]


def write_episode(path: Path, *, closes: bool = True) -> Rig:
    """Write it, and return the rig it was made with."""
    clock = ManualClock(ms(1000))
    rules = ContractRules(t_stop=None, resume_ramp=0)
    settings = LoopSettings(control_hz=50.0, contract=rules, merge="weighted_average")
    with EpisodeLog(path, head={"robot": "arm-1"}, clock=clock.now) as log:
        Journal(log).opened(clock.now(), settings.in_words())
        rig = Rig(settings, hooks=Hooks(pose=pose_of), log=log, clock=clock).started()
        rig.run(seconds(1))
        rig.is_cut = True
        rig.run_until(State.HOLD)
        rig.is_cut = False
        rig.motion.contract.resume()
        rig.run(seconds(1))
        if closes:
            Journal(log).end(clock.now(), {"ticks": 200, "overruns": 1, "starved_ticks": 25})
    return rig
