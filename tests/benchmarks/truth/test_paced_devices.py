"""What is read from the commands that measure paced devices."""

import pytest
import yaml
from benchmarks.truth.paced_devices import measured_again, outside_of, seconds_told
from benchmarks.truth.paced_running import (
    cpu_shares,
    fleet_file,
    launch_times,
    layout_of,
    with_handover,
)


def test_the_time_outside_the_device_is_divided_between_in_and_out() -> None:
    parts = {"sender": 0.5, "network": 1.0, "decode": 0.7, "queue": 9.0, "reply": 0.1}
    told = {
        "split_ms": {part: {"p50": time, "p99": 2 * time} for part, time in parts.items()},
        "stages_ms": {"link": {"p50": 0.3}, "prefix": {"p50": 20.0}},
    }

    outside = outside_of(told)

    assert outside == {
        "up_ms": 2.0,
        "down_ms": 0.6,
        "allowance_ms": 1.6,
        "p99_up_and_down_ms": 4.6,
    }
    # The promise is the same instant to a plan, whose requests arrive at the worker, and to a
    # server, which has read them earlier.
    read_after = parts["sender"] + parts["network"] / 2
    assert read_after - outside["allowance_ms"] == pytest.approx(-outside["down_ms"])


@pytest.mark.parametrize(
    ("tries", "kept"),
    [
        ([(False, 0.9)], {"is_client_the_limit": False, "attainment": 0.9}),
        (
            [(True, 1.0), (False, 0.9)],
            {"is_client_the_limit": False, "attainment": 0.9, "is_second": True},
        ),
        (
            [(True, 0.9), (True, 0.8), (False, 1.0)],
            {"is_client_the_limit": True, "attainment": 0.8, "is_second": True},
        ),
    ],
)
def test_what_late_robots_measured_is_measured_once_more_whatever_it_said(
    tries: list[tuple[bool, float]], kept: dict[str, float]
) -> None:
    found = [{"is_client_the_limit": late, "attainment": share} for late, share in tries]

    assert measured_again(lambda: found.pop(0)) == kept


@pytest.mark.parametrize(
    ("log", "seconds"),
    [("x\nmeasured in 53.1 s of the device's time;", 53.1), ("measured in 4 min 38 s; 0", 278.0)],
)
def test_the_time_profiling_took_is_read_from_its_log(log: str, seconds: float) -> None:
    assert seconds_told(log) == pytest.approx(seconds)


def test_a_log_without_a_time_is_refused() -> None:
    with pytest.raises(ValueError, match="did not say"):
        seconds_told("no device")


def test_the_fleet_file_is_driven_as_planned() -> None:
    said = {
        "models": {"pi0": {"slo_ms": 156.0}},
        "formation": ["flowing"],
        "options": {"device": {"gathering": 4}},
        "prefix_sizes": {"pi0": [1, 2]},
        "denoise_sizes": {"pi0": [1, 2, 4]},
    }
    network = {"up_ms": 2.0, "down_ms": 0.5}

    text = fleet_file(
        said,
        gpu="h100",
        seed=3,
        profile="pi0-3.json",
        networks={"pi0": network},
        spread=0.03,
    )

    file = yaml.safe_load(text)
    assert file["models"]["pi0"] == {
        "slo_ms": 156.0,
        "prefix_sizes": [1, 2],
        "denoise_sizes": [1, 2, 4],
    }
    assert file["devices"]["gpu"]["options"] == {"gathering": 4}
    assert (file["devices"]["gpu"]["paced"], file["devices"]["gpu"]["paced_seed"]) == ("h100", 3)
    assert file["devices"]["gpu"]["spread"] == 0.03
    assert file["robots"][0]["layout"] == layout_of("pi0")
    assert file["robots"][0]["network"] == {"kind": "constant", "up_ms": 2.0, "down_ms": 0.5}


def test_a_process_that_has_come_meanwhile_has_no_share() -> None:
    assert cpu_shares({"gateway": 1.0}, {"gateway": 2.0, "worker": 9.0}, 4.0) == {"gateway": 0.25}


PROFILE = {
    "takt_profile": 1,
    "profile": {"solo": [["pi0", 0, 2, 1, 188, 20_000_000], ["pi0", 1, 2, 1, 188, 30_000_000]]},
}


def test_the_handover_is_what_launches_took_longer_than_the_profile_says() -> None:
    trace = [
        '{"takt_trace": 1, "setup": {}}',
        '{"event": "decide", "at": 0, "launches": [[[0, 0], "pi0", [1], 1, 2, 188]]}',
        '{"event": "finish", "at": 20400000, "lane": [0, 0]}',
        '{"event": "decide", "at": 20400000, "launches": [[[0, 1], "pi0", [1], 1, 2, 188]]}',
        '{"event": "finish", "at": 50600000, "lane": [0, 1]}',
    ]

    times = launch_times(trace, PROFILE)

    assert times.handover_ms == pytest.approx(0.3)
    assert times.spread == pytest.approx((0.1 / 20 + 0.1 / 30) / 2 / 0.6745)


def test_every_launch_takes_the_handover_longer() -> None:
    here = with_handover(PROFILE, 0.5)

    assert [row[5] for row in here["profile"]["solo"]] == [20_500_000, 30_500_000]
    assert PROFILE["profile"]["solo"][0][5] == 20_000_000
