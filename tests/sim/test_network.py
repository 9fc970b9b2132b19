"""Network models: seeded, whole nanoseconds, and an allowance that is computed."""

import dataclasses
import math
import statistics
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import ConfigError, UsageError
from takt.sim.network import (
    CHUNK_BYTES,
    ConstantNetwork,
    LogNormalNetwork,
    Network,
    Wifi7Network,
    observation_bytes,
)
from takt.units import ms, to_ms

NETWORKS: list[Network] = [
    ConstantNetwork(up_ms=2.5, down_ms=1.0),
    LogNormalNetwork(burst_probability=0.01),
    Wifi7Network(burst_probability=0.01),
]
each_network = pytest.mark.parametrize("network", NETWORKS, ids=lambda n: type(n).__name__)


def draws(network: Network, count: int = 2000, seed: int = 1) -> list[int]:
    rng = Random(seed)
    return [network.up(0, 1, rng) for _ in range(count)]


@each_network
def test_equal_seeds_give_equal_delays(network: Network) -> None:
    assert draws(network, seed=7) == draws(network, seed=7)


@each_network
def test_delays_are_whole_nanoseconds(network: Network) -> None:
    rng = Random(1)

    assert all(type(network.up(450_000, 3, rng)) is int for _ in range(50))
    assert all(type(network.down(6_400, 3, rng)) is int for _ in range(50))
    assert type(network.allowance()) is int


def test_a_constant_network_takes_its_time_whatever_the_size() -> None:
    network = ConstantNetwork(up_ms=2.5, down_ms=1.0)

    assert network.up(10**6, 9, Random(1)) == ms(2.5)
    assert network.down(0, 1, Random(1)) == ms(1.0)
    assert network.allowance() == ms(3.5)


def test_log_normal_delays_have_the_median_and_spread_they_claim() -> None:
    network = LogNormalNetwork(median_ms=2.0, sigma=0.5, base_ms=1.0)

    logs = [math.log(to_ms(delay) - 1.0) for delay in draws(network, 20_000)]

    assert statistics.fmean(logs) == pytest.approx(math.log(2.0), abs=0.02)
    assert statistics.stdev(logs) == pytest.approx(0.5, abs=0.02)


def test_without_spread_a_log_normal_network_is_constant() -> None:
    network = LogNormalNetwork(median_ms=2.0, sigma=0.0, base_ms=1.0)

    assert set(draws(network)) == {ms(3.0)}
    assert network.allowance() == ms(6.0)


def test_bursts_hit_their_share_of_the_messages_within_their_range() -> None:
    network = LogNormalNetwork(
        median_ms=1.0, sigma=0.0, burst_probability=0.1, burst_ms=(20.0, 40.0)
    )

    added = [to_ms(delay) - 1.0 for delay in draws(network, 20_000)]
    bursts = [extra for extra in added if extra > 0]

    assert len(bursts) / len(added) == pytest.approx(0.1, abs=0.01)
    assert 20.0 <= min(bursts) < 20.5
    assert 39.5 < max(bursts) <= 40.0
    assert statistics.fmean(bursts) == pytest.approx(30.0, abs=0.5)


@given(st.integers(), st.floats(0.001, 1.0))
def test_bursts_do_not_change_the_jitter_of_other_messages(seed: int, probability: float) -> None:
    calm = draws(LogNormalNetwork(), 50, seed)
    rough = draws(LogNormalNetwork(burst_probability=probability), 50, seed)

    assert all(b == a or b - a >= ms(20) for a, b in zip(calm, rough, strict=True))


def test_a_raw_observation_is_its_pixels_and_a_jpeg_is_far_smaller() -> None:
    assert observation_bytes(3, "raw") == 3 * 150_528 + 1_000
    assert observation_bytes(3, "jpeg") == 61_000
    assert CHUNK_BYTES == 6_400


@given(st.integers(0, 10**7), st.integers(1, 64))
def test_robots_share_the_bandwidth_of_wifi7(num_bytes: int, robots: int) -> None:
    network = Wifi7Network(bandwidth_gbps=1.0)

    alone = network.up(0, 1, Random(3))
    shared = network.up(num_bytes, robots, Random(3))

    assert shared - alone == num_bytes * 8 * robots


def test_more_cameras_robots_and_bursts_need_more_allowance() -> None:
    plain = Wifi7Network(num_cameras=1, encoding="jpeg")
    larger = [
        {"num_cameras": 3},
        {"encoding": "raw"},
        {"planned_robots": 8},
        {"burst_probability": 0.02},
        {"base_ms": 2.0},
    ]

    for change in larger:
        assert dataclasses.replace(plain, **change).allowance() > plain.allowance()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "network",
    [LogNormalNetwork(), LogNormalNetwork(sigma=1.0, burst_probability=0.03), Wifi7Network()],
)
def test_one_exchange_in_a_hundred_exceeds_the_allowance(network: Network) -> None:
    num_bytes = (observation_bytes(2, "raw"), CHUNK_BYTES)
    if isinstance(network, LogNormalNetwork):
        num_bytes = (0, 0)
    rng = Random(99)
    allowance = network.allowance()

    exceeding = sum(
        network.up(num_bytes[0], 1, rng) + network.down(num_bytes[1], 1, rng) > allowance
        for _ in range(20_000)
    )

    assert exceeding / 20_000 == pytest.approx(0.01, abs=0.003)


def test_the_allowance_is_a_constant_of_the_network() -> None:
    assert LogNormalNetwork(sigma=0.9).allowance() == LogNormalNetwork(sigma=0.9).allowance()


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: ConstantNetwork(up_ms=-1), "up_ms must be a number of at least 0, got -1"),
        (lambda: ConstantNetwork(down_ms=math.inf), "down_ms"),
        (lambda: LogNormalNetwork(median_ms=math.nan), "median_ms"),
        (lambda: LogNormalNetwork(sigma=3.1), "sigma must be at most 3.0, got 3.1"),
        (lambda: LogNormalNetwork(burst_probability=1.1), "burst_probability"),
        (lambda: LogNormalNetwork(burst_ms=(40, 20)), "burst_ms must be an ascending range"),
        (lambda: LogNormalNetwork(burst_ms=(-1, 20)), "burst_ms"),
        (lambda: Wifi7Network(bandwidth_gbps=0), "bandwidth_gbps must be positive, got 0"),
        (lambda: Wifi7Network(planned_robots=0), "planned_robots"),
        (lambda: Wifi7Network(num_cameras=-1), "num_cameras"),
        (lambda: Wifi7Network(encoding="png"), "encoding must be 'raw' or 'jpeg', got 'png'"),  # type: ignore[arg-type]
        (lambda: Wifi7Network(jitter_sigma=-0.1), "jitter_sigma"),
        (lambda: Wifi7Network(base_ms=-0.1), "base_ms"),
    ],
)
def test_an_impossible_network_is_refused(build: object, named: str) -> None:
    assert callable(build)
    with pytest.raises(ConfigError, match=named):
        build()


@pytest.mark.parametrize(
    ("num_bytes", "robots", "named"), [(-1, 1, "num_bytes"), (0, 0, "active_robots")]
)
def test_an_impossible_message_is_refused(num_bytes: int, robots: int, named: str) -> None:
    network = Wifi7Network()

    with pytest.raises(UsageError, match=named):
        network.up(num_bytes, robots, Random(1))
    with pytest.raises(UsageError, match=named):
        network.down(num_bytes, robots, Random(1))
