"""The classes of LeRobot that cross the wire, as names with the fields they have.

A message is one object, or a list of objects, of these classes. :class:`LerobotMessage` reads its
pickle, takes objects apart into their fields, and gives values their meaning under their key.
Fields that are missing or unknown are refused by name.

The module path of the classes changed in LeRobot 0.4; :class:`Spelling` tells the two apart.

Start reading at :meth:`LerobotMessage.fields_of`.
"""

import enum
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar, cast

from takt.errors import WireError
from takt.wire.faults import refused
from takt.wire.lerobot_arrays import ALLOWED, AnyArray, ArrayReader
from takt.wire.lerobot_features import FEATURE_NAMES
from takt.wire.lerobot_pickle import Global, LongText, PickleReader, Record, shown, shown_key
from takt.wire.limits import Account, Limits, UnplacedError

__all__ = [
    "ACTION",
    "OBSERVATION",
    "SETUP",
    "LerobotClass",
    "LerobotMessage",
    "LerobotValue",
    "Spelling",
    "object_record",
    "plain",
    "plain_dict",
]

LerobotValue: TypeAlias = "AnyArray | float | str"
"""A value of an observation: an array of rank 1 or more, a number, text."""

_Found = TypeVar("_Found")


class Spelling(enum.Enum):
    """The module in which a client has LeRobot's classes. The value is its path."""

    ASYNC_INFERENCE = "lerobot.async_inference.helpers"
    """LeRobot 0.4 and later."""
    SCRIPTS_SERVER = "lerobot.scripts.server.helpers"
    """LeRobot 0.3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LerobotClass:
    """One of LeRobot's dataclasses."""

    name: str
    required: frozenset[str]
    """Fields that every version sends."""
    defaults: Mapping[str, object] = field(default_factory=dict[str, object])
    """What is assumed of the other fields."""

    @property
    def fields(self) -> frozenset[str]:
        """All fields."""
        return self.required | self.defaults.keys()


SETUP = LerobotClass(
    name="RemotePolicyConfig",
    required=frozenset(
        {"policy_type", "pretrained_name_or_path", "lerobot_features", "actions_per_chunk"}
    ),
    defaults={"device": "cpu", "rename_map": {}},
)
OBSERVATION = LerobotClass(
    name="TimedObservation",
    required=frozenset({"timestamp", "timestep", "observation"}),
    defaults={"must_go": False},
)
ACTION = LerobotClass(name="TimedAction", required=frozenset({"timestamp", "timestep", "action"}))

_SPELLINGS = {spelling.value: spelling for spelling in Spelling}
_CLASSES = frozenset(
    Global(path, known.name) for path in _SPELLINGS for known in (SETUP, OBSERVATION, ACTION)
)
_KNOWN = ALLOWED | FEATURE_NAMES | _CLASSES
_LAST_TIMESTEP = 2**63 - 1


class LerobotMessage:
    """One message and the account it is read on.

    Args:
        kind: What the message is, for errors.
        data: Its pickle.
        limits: What it may ask for.

    Raises:
        WireError: The bytes are no pickle of LeRobot's classes, numpy arrays and torch tensors.
        LimitError: They ask for more than ``limits`` allow.
    """

    def __init__(self, kind: str, data: bytes | memoryview, limits: Limits) -> None:
        self.account = Account(limits)
        self._kind = kind
        pickles = PickleReader(self.account)
        self._arrays = ArrayReader(pickles)
        view = memoryview(data).cast("B").toreadonly()
        try:
            self.account.check(len(view), limits.max_message_bytes, "bytes in the message")
            self.value, end = pickles.read(view, _KNOWN)
        except UnplacedError as error:
            raise error.at(kind) from None
        if end != len(view):
            raise WireError(f"{kind}: expected the end of it, got {len(view) - end} more bytes")

    def fields_of(
        self, value: object, expected: LerobotClass
    ) -> tuple[Spelling, dict[str, object]]:
        """Spelling and fields of an object, with the defaults of those that it lacks.

        Raises:
            WireError: It is of another class, or has other fields.
        """
        if not isinstance(value, Record) or value.function.name != expected.name:
            raise WireError(f"{self._kind}: expected a {expected.name}, got {shown(value)}")
        if value.arguments:
            raise WireError(f"{self._kind}: expected a {expected.name} with its fields, got others")
        fields = plain_dict(value.state, self._kind)
        self._check_names(fields.keys(), expected)
        return _SPELLINGS[value.function.module], {**expected.defaults, **fields}

    def _check_names(self, names: Collection[str], expected: LerobotClass) -> None:
        if missing := expected.required.difference(names):
            raise WireError(f"{self._kind}: expected the field {min(missing)}, got none")
        if unknown := frozenset(names) - expected.fields:
            known = ", ".join(sorted(expected.fields))
            name = shown(min(unknown))
            raise WireError(f"{self._kind}: expected the fields {known}, got {name}")

    def read(self, key: str, value: object) -> LerobotValue:
        """A number, an array or text under a key.

        Raises:
            ObservationError: It is something else, or an array that is refused.
            LimitError: It asks for more than the limits allow.
        """
        if isinstance(value, (str, float)):
            return value
        place = shown_key(key)
        try:
            if isinstance(value, int):
                return _as_float(value)
            if isinstance(value, LongText):
                most = self.account.limits.max_string_bytes
                self.account.check(len(value.utf8), most, "bytes of text")
            if not isinstance(value, Record):
                raise refused("a number, text or an array", shown(value))
            array = self._arrays.read(value)
        except UnplacedError as error:
            raise error.at(place) from None
        return array if array.ndim else float(array)

    def number(self, key: str, value: object) -> float:
        """A number in a field of an object.

        Raises:
            WireError: It is none.
        """
        number = self.read(key, value)
        if not isinstance(number, (float, int)):
            raise WireError(f"{self._kind}.{key}: expected a number, got {shown(number)}")
        return number

    def instant(self, value: object) -> float:
        """A timestamp, in seconds.

        Raises:
            WireError: It is no finite number.
        """
        seconds = self.number("timestamp", value)
        if not math.isfinite(seconds):
            raise WireError(f"{self._kind}.timestamp: expected seconds, got {seconds}")
        return seconds

    def timestep(self, value: object) -> int:
        """The number of a control step.

        Raises:
            WireError: It is no whole number from 0 to 2**63 - 1.
        """
        # Not by way of a float where it is a plain integer: floats skip integers above 2**53.
        number = value if isinstance(value, int) else self.number("timestep", value)
        if number % 1 or not 0 <= number <= _LAST_TIMESTEP:
            raise WireError(f"{self._kind}.timestep: expected 0 or more, got {shown(number)}")
        return int(number)


def plain(value: object, kind: type[_Found], place: str) -> _Found:
    """A value that must be of exactly this type.

    Raises:
        WireError: It is of another one.
    """
    if type(value) is not kind:
        raise WireError(f"{place}: expected {kind.__name__}, got {shown(value)}")
    return cast("_Found", value)


def plain_dict(value: object, place: str) -> dict[str, object]:
    """A value that must be a dict; pickles of messages have none with other keys than text.

    Raises:
        WireError: It is something else.
    """
    return cast("dict[str, object]", plain(value, dict, place))


def object_record(of: LerobotClass, spelling: Spelling, **fields: object) -> Record:
    """The object of a class of LeRobot with these fields, ready to be written."""
    return Record(Global(spelling.value, of.name), state=fields, is_new=True)


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise refused("a number that a float holds", "a larger one") from None
