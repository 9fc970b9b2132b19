"""Which camera a key of an openpi observation means; clients spell it in many ways.

A client's key is cut to its last part (``observation/wrist_image`` to ``wrist_image``) and must be
the name of a camera of the policy, with or without ``_image`` behind it. LeRobot's dots count as
slashes.
"""

from collections.abc import Collection

__all__ = ["camera_named", "last_part", "with_slashes"]

_IMAGE_SUFFIX = "_image"


def with_slashes(key: str) -> str:
    """One spelling for LeRobot's dots and openpi's slashes."""
    return key.replace(".", "/") if key.startswith("observation.") else key


def last_part(key: str) -> str:
    """The end of a key with slashes."""
    return key.rpartition("/")[2]


def camera_named(key: str, cameras: Collection[str]) -> str:
    """Name of the camera a key with slashes means.

    Args:
        key: The client's, parts of nested maps joined by a slash.
        cameras: Those of the policy. A key that means none of them gives a name of its own.
    """
    last = last_part(key)
    short = last.removesuffix(_IMAGE_SUFFIX)
    if last not in cameras and short in cameras:
        return short
    long = last + _IMAGE_SUFFIX
    return long if last not in cameras and long in cameras else last
