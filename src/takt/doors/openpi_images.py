"""What the openpi door says of images when it greets: how they may be encoded and resized."""

from __future__ import annotations

from takt.schema.spec import ObservationSpec
from takt.wire.image_files import available_encodings

__all__ = ["image_offer"]


def image_offer(spec: ObservationSpec) -> dict[str, object]:
    """The part ``images`` of a greeting.

    Args:
        spec: What the model takes. One that reads several instants at once takes arrays only.
    """
    offer: dict[str, object] = {"encodings": [*available_encodings()] if spec.history == 1 else []}
    if spec.history == 1 and any(camera.robot_may_resize for camera in spec.cameras):
        from takt.schema.resizing import resize_check  # imports OpenCV

        offer["resize_check"] = resize_check()
    return offer
