import pytest

from takt.errors import ConfigError
from takt.policies.lerobot.documents import Section
from takt.policies.lerobot.sizes import TowerSizes, image_tokens, stack_sizes, tower_sizes

STACK = {
    "language.layers.0.query.weight": (16, 24),
    "language.layers.0.key.weight": (8, 24),
    "language.layers.0.gate.weight": (40, 24),
    "language.layers.1.query.weight": (16, 24),
}
TOWER = {
    "vision.patch.weight": (12, 3, 4, 4),
    "vision.positions": (9, 12),
    "vision.layers.0.up.weight": (20, 12),
}


def test_sizes_are_read_off_the_weights_and_heads_off_the_published_width() -> None:
    stack = stack_sizes(STACK, "language", None, {24: 4})
    tower = tower_sizes(TOWER, None, {12: 3})

    assert (stack.depth, stack.heads, stack.kv_heads, stack.mlp) == (2, 4, 2, 40)
    assert (tower.heads, tower.patch, tower.positions, tower.mlp) == (3, 4, 9, 20)


def test_heads_of_another_width_come_from_the_file_of_sizes() -> None:
    dims = Section({"vision": {"num_attention_heads": 2}}, "dims.json")

    assert stack_sizes(STACK, "language", Section({"head_dim": 8}, "d"), {}).heads == 2
    assert tower_sizes(TOWER, dims, {}).heads == 2
    with pytest.raises(ConfigError, match=r"width 24.*dims\.json"):
        stack_sizes(STACK, "language", None, {2048: 256})
    with pytest.raises(ConfigError, match=r"width 12.*dims\.json"):
        tower_sizes(TOWER, None, {})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"language.layers.0.query.weight": (15, 24)}, "do not divide"),
        ({"language.layers.0.query.weight": (16,)}, "no tensor of 2 axes"),
        ({"language.layers.3.query.weight": (16, 24)}, "not numbered from 0"),
    ],
)
def test_weights_that_contradict_each_other_are_refused(
    change: dict[str, tuple[int, ...]], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        stack_sizes({**STACK, **change}, "language", None, {24: 4})


def test_an_image_must_be_whole_patches_the_tower_knows() -> None:
    tower = TowerSizes(width=12, depth=1, heads=3, mlp=20, patch=4, positions=9)

    assert image_tokens("config.json", tower, 12, 12) == 9
    assert image_tokens("config.json", tower, 4, 8) == 2
    for height, width in ((13, 12), (16, 12), (0, 4)):
        with pytest.raises(ConfigError, match="do not fit a tower of 3 patches of 4"):
            image_tokens("config.json", tower, height, width)
