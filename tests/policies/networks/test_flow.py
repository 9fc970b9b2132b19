import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the networks need torch")

from takt.policies.networks.flow import FlowInputs, integrate, time_table  # noqa: E402


def inputs(weights: float, previous: float = 0.0) -> FlowInputs:
    noise = torch.ones(1, 3, 2)
    return FlowInputs(
        noise=noise,
        previous=torch.full_like(noise, previous),
        weights=torch.full((1, 3), weights),
    )


def test_a_constant_velocity_is_followed_from_one_to_zero() -> None:
    end = integrate(
        lambda x, step: torch.full_like(x, 2.0), inputs(0.0), num_steps=5, max_guidance=10
    )

    torch.testing.assert_close(end, torch.full((1, 3, 2), -1.0))


def test_full_weights_draw_the_chunk_to_the_previous_one() -> None:
    end = integrate(
        lambda x, step: torch.zeros_like(x), inputs(1.0, 4.0), num_steps=10, max_guidance=10
    )

    torch.testing.assert_close(end, torch.full((1, 3, 2), 4.0), atol=0.1, rtol=0)


def test_the_time_table_has_sines_then_cosines_of_exact_angles() -> None:
    table = time_table(10, 4, 4e-3, 4.0).numpy()

    np.testing.assert_allclose(table[0, :2], np.sin(2 * np.pi / np.array([4e-3, 4.0])), atol=1e-7)
    np.testing.assert_allclose(table[0, 2:], np.cos(2 * np.pi / np.array([4e-3, 4.0])), atol=1e-7)
