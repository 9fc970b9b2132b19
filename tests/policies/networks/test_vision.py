import pytest

torch = pytest.importorskip("torch", reason="the networks need torch")

from takt.policies.lerobot.sizes import TowerSizes  # noqa: E402
from takt.policies.networks.vision import full_grid  # noqa: E402


def sizes(side: int) -> TowerSizes:
    return TowerSizes(width=4, depth=1, heads=1, mlp=4, patch=2, positions=side * side)


@pytest.mark.parametrize("side", [8, 16, 32])
def test_a_full_image_uses_every_position_in_order(side: int) -> None:
    assert full_grid(sizes(side), 2 * side, 2 * side).tolist() == list(range(side * side))


def test_a_smaller_image_spreads_over_the_grid() -> None:
    assert full_grid(sizes(4), 4, 8).tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
