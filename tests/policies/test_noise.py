import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.policies.noise import noise_for

KEYS = st.tuples(st.integers(-(2**63), 2**63), st.text(max_size=20), st.integers(0, 2**63))


@given(KEYS)
def test_the_same_request_gets_the_same_noise(key: tuple[int, str, int]) -> None:
    np.testing.assert_array_equal(noise_for(*key, (4, 2)), noise_for(*key, (4, 2)))


@given(KEYS, KEYS)
def test_different_requests_get_different_noise(
    a: tuple[int, str, int], b: tuple[int, str, int]
) -> None:
    same = np.array_equal(noise_for(*a, (4, 2)), noise_for(*b, (4, 2)))

    assert same == (a == b)


def test_noise_is_standard_normal_float32() -> None:
    noise = noise_for(0, "robot", 0, (100, 100))

    assert noise.dtype == np.float32
    assert noise.mean() == pytest.approx(0, abs=0.05)
    assert noise.std() == pytest.approx(1, abs=0.05)


def test_noise_has_the_numbers_it_had_when_this_was_written() -> None:
    # A chunk can be recomputed from a log only while this holds.
    expected = [1.0745895, 0.04289367, -2.1561539, 1.0429788]

    np.testing.assert_allclose(noise_for(7, "arm", 3, (4,)), expected, rtol=1e-6)
