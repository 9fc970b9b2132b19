from typing import Any

import pytest

from takt.client.image_settings import ImageSettings
from takt.errors import ConfigError


def test_images_go_as_they_are_unless_a_robot_asks() -> None:
    assert ImageSettings() == ImageSettings(send="as_given", jpeg_quality=95)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"send": "webp"}, "images must be one of as_given, resized, png, jpeg, got 'webp'"),
        ({"jpeg_quality": 0}, r"jpeg_quality must lie in 1\.\.100, got 0"),
        ({"jpeg_quality": 101}, "got 101"),
    ],
)
def test_an_impossible_setting_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ImageSettings(**settings)


@pytest.mark.parametrize(
    ("send", "missing", "needed"),
    [
        ("resized", "cv2", "opencv-python-headless"),
        ("png", "cv2", "opencv-python-headless"),
        ("jpeg", "cv2", "opencv-python-headless"),
        ("jpeg", "simplejpeg", "simplejpeg"),
    ],
)
def test_a_missing_package_is_named_with_what_to_install(
    send: Any,  # noqa: ANN401
    missing: str,
    needed: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(name: str) -> object:
        return None if name == missing else object()

    monkeypatch.setattr("takt.client.image_settings.find_spec", find)

    with pytest.raises(ConfigError) as caught:
        ImageSettings(send=send)
    assert str(caught.value) == (
        f"images={send!r} needs {needed}, which is not installed;"
        " install: pip install 'takt-serve[images]'"
    )


def test_images_as_they_are_need_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("takt.client.image_settings.find_spec", lambda _: None)

    ImageSettings()
