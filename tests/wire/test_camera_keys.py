import pytest

from takt.wire.camera_keys import camera_named, last_part, with_slashes

CAMERAS = {"top", "wrist_image"}


@pytest.mark.parametrize(
    ("key", "camera"),
    [
        ("observation/top", "top"),
        ("observation/top_image", "top"),
        ("images/top", "top"),
        ("top", "top"),
        ("observation/wrist", "wrist_image"),
        ("observation/wrist_image", "wrist_image"),
        ("observation/side_image", "side_image"),
        ("observation/top/depth", "depth"),
    ],
)
def test_a_camera_is_named_by_the_end_of_a_key(key: str, camera: str) -> None:
    assert camera_named(key, CAMERAS) == camera


def test_an_exact_name_goes_before_one_with_image_behind_it() -> None:
    assert camera_named("observation/top_image", {"top", "top_image"}) == "top_image"
    assert camera_named("observation/top", {"top", "top_image"}) == "top"


def test_dots_are_slashes_in_lerobots_keys_and_nowhere_else() -> None:
    assert with_slashes("observation.images.top") == "observation/images/top"
    assert with_slashes("images/top.left") == "images/top.left"
    assert last_part("a/b/c") == "c"
