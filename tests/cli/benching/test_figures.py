import json

import pytest
from tests.cli.benching.made import GONE, epoch, run

from takt.cli.benching.figures import EpochResult, bench_figures
from takt.units import SECOND


def figures(*epochs: EpochResult, target: float = 0.98, planned: int = 5) -> dict[str, object]:
    return bench_figures(epochs, duration=20 * SECOND, seed=4, target=target, planned=planned)


def three() -> list[EpochResult]:
    return [epoch(run("a", 5, 5, 5, 80), run("b", 5, 5, 5, 5), seed=seed) for seed in (4, 5, 6)]


def test_every_request_of_every_epoch_counts() -> None:
    found = figures(*three())

    assert (found["robots"], found["issued"], found["attainment"]) == (2, 24, 0.875)
    assert found["seconds"] == 60.0
    assert found["server_away"] is None
    assert found["epochs"] == [
        {
            "seed": seed,
            "issued": 8,
            "attainment": 0.875,
            "worst_robot": 0.75,
            "by_model": {"echo": 0.875},
            "server_away": None,
        }
        for seed in (4, 5, 6)
    ]


def test_a_server_holds_what_the_bound_reaches() -> None:
    epochs = [
        epoch(run("a", *[5] * good, *[80] * (10 - good)), seed=seed)
        for seed, good in enumerate((10, 9, 10))
    ]

    found = figures(*epochs, target=0.9)

    assert found["mean"] == pytest.approx(0.96667, abs=1e-5)
    assert found["holds"] is False
    assert found["bound"] == pytest.approx(0.86933, abs=1e-4)
    assert figures(*epochs, target=0.86)["holds"] is True


def test_one_epoch_has_no_bound() -> None:
    found = figures(three()[0], planned=1)

    assert (found["holds"], found["bound"], found["interval"]) == (None, None, None)
    assert found["stopped_early"] is False


def test_a_run_with_epochs_to_spare_was_stopped_early() -> None:
    assert figures(*three())["stopped_early"] is True
    assert figures(*three(), planned=3)["stopped_early"] is False


def test_the_split_has_quantiles_of_each_part() -> None:
    split = figures(epoch(run("a", 7, 9)))["split_ms"]

    assert split == {
        "held": {"p50": 0.0, "p90": 0.0, "p99": 0.0, "max": 0.0},
        "sender": {"p50": 2.0, "p90": 4.0, "p99": 4.0, "max": 4.0},
        "network": {"p50": 2.0, "p90": 2.0, "p99": 2.0, "max": 2.0},
        "server": {"p50": 3.0, "p90": 3.0, "p99": 3.0, "max": 3.0},
    }


@pytest.mark.parametrize(
    ("cpu", "share", "busiest", "is_bottleneck"),
    [
        ((SECOND // 10, SECOND // 5), 0.3, 0.2, False),
        ((SECOND // 10, SECOND * 4 // 5), 0.9, 0.8, True),
    ],
)
def test_the_client_measures_itself(
    cpu: tuple[int, ...], share: float, busiest: float, is_bottleneck: bool
) -> None:
    senders = figures(epoch(run("a", 5), cpu=cpu))["senders"]

    assert isinstance(senders, dict)
    assert senders["processes"] == 2
    assert senders["cpu_share"] == pytest.approx(share)
    assert senders["busiest"] == pytest.approx(busiest)
    assert senders["is_bottleneck"] is is_bottleneck


def test_the_figures_are_json() -> None:
    found = figures(*three())

    assert json.loads(json.dumps(found)) == found


def test_of_a_server_that_went_away_the_last_epoch_says_how() -> None:
    back = epoch(run("a", 5, GONE, 5), run("b", 5, 5, 5))
    gone = epoch(run("a", 5, 5, GONE), run("b", GONE, GONE, GONE))

    found = figures(back, gone, three()[0])
    at_the_end = figures(back, gone)

    away = {"robots": 1, "from_s": 0.1, "back_after_s": 0.105, "not_served_again": 0}
    assert [one["server_away"] for one in found["epochs"]] == [  # type: ignore[attr-defined]
        {**away, "for_good": False},
        {
            "robots": 2,
            "from_s": 0.2,
            "back_after_s": None,
            "not_served_again": 2,
            "for_good": True,
        },
        None,
    ]
    assert found["server_away"] == at_the_end["server_away"]
    assert at_the_end["server_away"] == {**at_the_end["epochs"][1]["server_away"], "epoch": 2}  # type: ignore[index]


def test_a_run_that_a_server_ended_by_going_away_was_not_stopped_early() -> None:
    gone = epoch(run("a", 5, GONE))

    assert figures(*three(), gone)["stopped_early"] is False
    assert figures(gone, *three())["stopped_early"] is True
