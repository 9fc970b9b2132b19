"""A launch knows its entry in the profile; a decision may be to do nothing."""

from tests.core.driving import DENOISE

from takt.core.launch import NOTHING, Decision, Launch
from takt.core.profile import Work
from takt.core.request import Stage


def test_the_work_of_a_launch_is_its_shape_without_its_rows() -> None:
    launch = Launch(DENOISE, "pi0-cups", (3, 5), size=4, layout=1, share=132)

    assert launch.work("pi0") == Work("pi0", Stage.DENOISE, layout=1, size=4, share=132)


def test_the_empty_decision_starts_nothing_and_sleeps() -> None:
    assert Decision(launches=(), wake_at=None) == NOTHING
