"""Each lane restarts as soon as it is idle, whatever the other one does."""

from tests.core.driving import Driver, model_of, profile_of, request_of
from tests.core.formations.dozen import PI, profile

from takt.core.formations.flowing import Flowing
from takt.core.request import Stage
from takt.core.trace import Setup

MODEL = model_of("pi0", prefix=(1,), denoise=(1,))


def test_a_prefix_starts_while_a_denoise_launch_is_still_running() -> None:
    """Prefix 10, denoise 20: the third prefix does not wait for the first denoise launch."""
    driver = Driver(Setup(models=(MODEL,), profile=profile_of(MODEL), formation="flowing"))

    driver.run([request_of(seq) for seq in range(3)])

    starts = {(run.stage, run.requests): run.start for run in driver.schedule}
    assert starts["prefix", (1,)] == 10
    assert starts["prefix", (2,)] == 20
    assert starts["denoise", (0,)] == 10
    assert starts["denoise", (1,)] == 30


def test_the_share_of_a_prefix_depends_on_what_is_left_of_the_launch_beside_it() -> None:
    """Beside a whole denoise launch half the device is best, beside the end of one all of it."""
    model = model_of("pi", slo=10_000, prefix=(1, 2), denoise=(1, 2, 4))
    driver = Driver(Setup(models=(model,), profile=profile(), formation="flowing"))
    early, late = 10, 29  # the denoise launch of the first request runs from 10 to about 30

    driver.run([request_of(0, "pi"), request_of(1, "pi", at=early), request_of(2, "pi", at=late)])

    shares = {run.requests: run.share for run in driver.schedule if run.stage == "prefix"}
    assert shares[0,] == 4
    assert shares[1,] == profile().best_share(*works(1, 1))
    assert shares[1,] < shares[2,]


def works(prefix: int, denoise: int):  # noqa: ANN201
    from takt.core.profile import Work

    return Work("pi", Stage.PREFIX, 0, prefix, 4), Work("pi", Stage.DENOISE, 0, denoise, 4)


def test_both_stages_are_expected_beside_each_other_without_a_barrier() -> None:
    share = profile().best_share(*works(2, 4))
    prefix, denoise = works(2, 4)

    expected = Flowing().expected(profile(), PI, 0)

    assert expected == profile().pair_ends(prefix._replace(share=share), denoise)


def test_a_single_pass_policy_needs_its_prefix_only() -> None:
    act = model_of("act", prefix=(1, 3), denoise=())

    assert Flowing().expected(profile_of(act), act, 0) == (10, 0)
