"""What a LeRobot robot says it sends, and how that differs from what a policy takes.

A robot's handshake lists its *features*: the names of its joints in order and its cameras with
their sizes, under keys such as ``observation.images.front``. A *rename map* translates the robot's
keys to the policy's. :func:`difference` compares both and says every fault at once, each key in
the robot's spelling with the policy's beside it where they differ.

Pure rules. Start reading at :func:`difference`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from takt.schema.spec import CameraSpec, PolicySpec

__all__ = ["IMAGE_PREFIX", "STATE_KEY", "TASK_KEY", "ImageFeature", "RobotFeatures", "difference"]

STATE_KEY = "observation.state"
IMAGE_PREFIX = "observation.images."
TASK_KEY = "task"

_RGB = 3
_MAX_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFeature:
    """One camera of a robot."""

    name: str
    """The robot's own name of it, without :data:`IMAGE_PREFIX`."""
    height: int
    width: int
    channels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotFeatures:
    """What a robot sends."""

    state_dim: int
    """Values of its state; 0: it sends none."""
    state_names: tuple[str, ...] = ()
    """Its joints in order, the keys of their values; empty when it gave no names."""
    images: tuple[ImageFeature, ...] = ()
    """Its cameras."""
    rename: tuple[tuple[str, str], ...] = ()
    """The robot's key and the policy's, of those that differ."""

    def camera_of(self, name: str) -> str:
        """The policy's name of a camera that the robot calls ``name``."""
        renamed = dict(self.rename).get(IMAGE_PREFIX + name)
        return name if renamed is None else renamed.removeprefix(IMAGE_PREFIX)

    def are_in(self, keys: frozenset[str]) -> bool:
        """Whether an observation with these keys has all of the robot's joints and cameras."""
        has_state = STATE_KEY in keys or (
            all(name in keys for name in self.state_names)
            and (bool(self.state_names) or not self.state_dim)
        )
        return has_state and all(
            image.name in keys or IMAGE_PREFIX + image.name in keys for image in self.images
        )


def difference(features: RobotFeatures, spec: PolicySpec) -> tuple[str, ...]:
    """Why a robot does not fit a policy; empty if it does.

    Args:
        features: What the robot says it sends.
        spec: The policy's card. Where it declares maxima only, sizes below them fit.
    """
    return (
        *_map_faults(features, spec),
        *_state_faults(features, spec),
        *_camera_faults(features, spec),
    )


def _map_faults(features: RobotFeatures, spec: PolicySpec) -> Iterable[str]:
    taken = {IMAGE_PREFIX + camera.name for camera in spec.observation.cameras}
    sent = {IMAGE_PREFIX + image.name for image in features.images} | {STATE_KEY}
    for robot_key, policy_key in features.rename:
        if robot_key in sent:
            continue
        if policy_key in sent and robot_key in taken:
            yield (
                f"rename map is the wrong way round: {_q(robot_key)} -> {_q(policy_key)} must go"
                f" from the robot's key {_q(policy_key)} to the policy's"
            )
        else:
            yield f"rename map: the robot has no {_q(robot_key)}"
    cameras = [features.camera_of(image.name) for image in features.images]
    for camera in dict.fromkeys(cameras):
        if cameras.count(camera) > 1:
            yield f"rename map: two cameras of the robot become {_q(IMAGE_PREFIX + camera)}"


def _state_faults(features: RobotFeatures, spec: PolicySpec) -> Iterable[str]:
    wanted, given = spec.observation.state_dim, features.state_dim
    if wanted and not given:
        yield f"missing: {STATE_KEY} with {wanted} values"
        return
    if spec.sizes_are_maxima and given <= wanted:
        return
    axes = tuple(axis.name for axis in spec.observation.state)
    if wanted and given != wanted:
        detail = _names_detail(features.state_names, axes)
        yield f"shape of {STATE_KEY}: the policy takes ({wanted},), the robot sends ({given},)" + (
            f"; {detail}" if detail else ""
        )
    elif axes and features.state_names and axes != features.state_names:
        yield _order_fault(STATE_KEY, features.state_names, axes)
    else:
        yield from _action_order(features, spec)


def _names_detail(given: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    if not wanted or not given:
        return ""
    missing = [name for name in wanted if name not in given]
    extra = [name for name in given if name not in wanted]
    parts = [f"missing {_listed(missing)}"] if missing else []
    parts += [f"extra {_listed(extra)}"] if extra else []
    return ", ".join(parts)


def _order_fault(key: str, given: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    if sorted(given) == sorted(wanted):
        return f"order of names in {key}: the policy takes {_listed(wanted)}; got {_listed(given)}"
    return f"names in {key}: {_names_detail(given, wanted)}"


def _action_order(features: RobotFeatures, spec: PolicySpec) -> Iterable[str]:
    """The robot hands a chunk's columns to its joints in order: the same joints, the same order."""
    axes = tuple(axis.name for axis in spec.action.axes)
    names = features.state_names
    if axes != names and axes and sorted(axes) == sorted(names):
        yield _order_fault("action", names, axes)


def _camera_faults(features: RobotFeatures, spec: PolicySpec) -> Iterable[str]:
    cameras = {camera.name: camera for camera in spec.observation.cameras}
    back = {policy_key: robot_key for robot_key, policy_key in features.rename}
    sent = {features.camera_of(image.name): image for image in features.images}
    missing = [name for name in cameras if name not in sent]
    extra = [name for name in sent if name not in cameras]
    # A camera that may be absent, beside one nobody knows, is a misspelling and no choice.
    if any(cameras[name].required for name in missing) or (missing and extra):
        yield from (f"missing: {_both(IMAGE_PREFIX + name, back)}" for name in missing)
        yield from (
            f"extra: {_q(IMAGE_PREFIX + sent[name].name)}"
            + (f" (renamed to {_q(IMAGE_PREFIX + name)})" if sent[name].name != name else "")
            for name in extra
        )
    for name, camera in cameras.items():
        if name in sent and not _fits(sent[name], camera):
            yield _shape_fault(sent[name], camera, _both(IMAGE_PREFIX + name, back))


def _fits(image: ImageFeature, camera: CameraSpec) -> bool:
    if image.channels != _RGB:
        return False
    size = (image.height, image.width)
    return camera.resize != "exact" or size == (camera.height, camera.width)


def _shape_fault(image: ImageFeature, camera: CameraSpec, key: str) -> str:
    exact = camera.resize == "exact"
    wanted = f"({camera.height}, {camera.width}, 3)" if exact else "any size with 3 channels"
    return (
        f"shape of {key}: the policy takes {wanted},"
        f" the robot sends ({image.height}, {image.width}, {image.channels})"
    )


def _both(policy_key: str, back: Mapping[str, str]) -> str:
    """A policy's key in the robot's spelling, with its own beside it where they differ."""
    robot_key = back.get(policy_key)
    if robot_key is None:
        return _q(policy_key)
    return f"{_q(robot_key)} (the policy's {_q(policy_key)})"


def _listed(names: Iterable[str]) -> str:
    shown = [*names]
    more = f" and {len(shown) - _MAX_SHOWN} more" if len(shown) > _MAX_SHOWN else ""
    return ", ".join(_q(name) for name in shown[:_MAX_SHOWN]) + more


def _q(name: str) -> str:
    return ascii(name)
