"""What one message may ask for, and the account of what it has asked for so far.

Every decoder in this package charges an account before it takes memory, so a small message that
declares something huge costs no more than reading its header. The account knows no protocol and
no place in the message: it raises an error without a place, and the decoder that knows where it
stands adds the key.
"""

from dataclasses import dataclass, fields

from takt.errors import ConfigError, LimitError, ObservationError, RefusedError

__all__ = ["Account", "Limits", "UnplacedError"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that one message may ask for.

    The defaults hold five 1280 x 720 cameras and refuse what no robot sends. Lower them on a door
    that strangers reach.
    """

    max_message_bytes: int = 64 * 2**20
    """Bytes of the whole message. A door should tell its transport the same number, so that the
    bytes are never collected in the first place."""
    max_depth: int = 16
    """Containers inside containers. An observation needs about four."""
    max_values: int = 4_096
    """Keys, values and list elements of a message together. This bounds the time of a decode: an
    array is a handful of values whatever its size, a list of numbers is one value per number."""
    max_map_keys: int = 512
    """Keys of one map."""
    max_key_bytes: int = 256
    """UTF-8 bytes of one key."""
    max_string_bytes: int = 64 * 2**10
    """UTF-8 bytes of one string, for example a prompt; also bytes of one array of text."""
    max_arrays: int = 256
    """Arrays and numpy scalars of a message together."""
    max_rank: int = 8
    """Dimensions of one array."""
    max_elements: int = 64 * 2**20
    """Elements of all arrays together."""
    max_decoded_bytes: int = 64 * 2**20
    """Bytes of all arrays, strings and byte strings of the decoded message together."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 1:
                raise ConfigError(f"{field.name} must be at least 1, got {value}")


class UnplacedError(Exception):
    """A message is at fault, at a place that whoever catches this knows.

    Args:
        kind: The error to raise once the place is known.
        expected: What would have been right.
        received: What came instead.
    """

    def __init__(self, kind: type[RefusedError], *, expected: str, received: str) -> None:
        super().__init__(f"expected {expected}, got {received}")
        self.kind = kind
        self.expected = expected
        self.received = received

    def at(self, place: str) -> RefusedError:
        """The error with its place, ready to be raised."""
        if self.kind is ObservationError:
            return ObservationError(place, expected=self.expected, received=self.received)
        return self.kind(f"{place}: {self}")


class Account:
    """What one message has used of its limits.

    Every method is called before the memory it stands for is taken.

    Raises:
        UnplacedError: A limit does not allow it (from every method).
    """

    __slots__ = ("_arrays", "_bytes", "_elements", "_values", "limits")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._arrays = 0
        self._bytes = 0
        self._elements = 0
        self._values = 0

    @property
    def decoded_bytes(self) -> int:
        """Bytes of arrays, strings and byte strings so far."""
        return self._bytes

    def charge_values(self, count: int) -> None:
        """Allow ``count`` more keys, values or list elements."""
        self._values += count
        self.check(self._values, self.limits.max_values, "values in the message")

    def charge_bytes(self, count: int) -> None:
        """Allow ``count`` more bytes of decoded content."""
        self._bytes += count
        if self._bytes > self.limits.max_decoded_bytes:  # a call saved: this one is hot
            self.check(self._bytes, self.limits.max_decoded_bytes, "decoded bytes")

    def charge_array(self, elements: int, num_bytes: int) -> None:
        """Allow one more array."""
        self._arrays += 1
        self._elements += elements
        self.check(self._arrays, self.limits.max_arrays, "arrays and numpy scalars")
        self.check(self._elements, self.limits.max_elements, "array elements in the message")
        self.charge_bytes(num_bytes)

    @staticmethod
    def check(asked: int, allowed: int, what: str) -> None:
        """Refuse ``asked`` when it is more than ``allowed``."""
        if asked > allowed:
            raise UnplacedError(
                LimitError, expected=f"at most {allowed} {what}", received=f"{asked}"
            )
