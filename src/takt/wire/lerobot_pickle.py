"""Pickle bytes to inert records: nothing is imported, constructed or called.

A pickle is a program for a small stack machine, and Python's unpickler runs it: it imports what
the program names and calls it. This reader walks the same program and only writes down what it
says. A class or function is an exact (module, name) pair of a list of allowed ones; a call of it
is a :class:`Record` with its arguments and its state. What records mean is decided afterwards, by
code that knows which key they stand under (:mod:`takt.wire.lerobot_arrays`,
:mod:`takt.wire.lerobot`).

Only the instructions occur that LeRobot's messages need, in protocols 2 to 5. Every declared length
is compared with the bytes that are there and with the limits; memo places, marks, instructions and
texts are counted before they are kept. Byte strings stay views of the message, so that an image is
never copied.

Why this is not ``pickle.Unpickler`` with a ``find_class``:
``docs/decisions/0011-pickles-are-read-not-run.md``.

Start reading at :meth:`PickleReader.read`; :mod:`takt.wire.lerobot_writing` is the other direction.
"""

from collections.abc import Callable, Collection
from struct import Struct
from typing import Any, NamedTuple, TypeAlias, cast

from takt.errors import LimitError, WireError
from takt.wire import faults
from takt.wire.limits import Account, UnplacedError

__all__ = ["Global", "LongText", "PickleReader", "Record", "View", "shown", "shown_key"]

View: TypeAlias = "memoryview[int]"
"""A read-only part of the message."""


class Global(NamedTuple):
    """A class or function by its name. It is never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class LongText(NamedTuple):
    """Text beyond the limit of a string, undecoded.

    Protocol 2 has no byte strings and writes them as text, so it may stand for an image.
    """

    utf8: View


class Record:
    """A call that a pickle asks for: what Python's unpickler would have done.

    Records are compared by identity, because pickles refer to what they made before.
    """

    __slots__ = ("arguments", "function", "is_new", "meaning", "state")

    def __init__(
        self,
        function: Global,
        arguments: tuple[object, ...] = (),
        *,
        state: object = None,
        is_new: bool = False,
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.state = state
        """What the object would have been set to; None when nothing."""
        self.is_new = is_new
        """Whether ``function`` is a class whose ``__new__`` is meant."""
        self.meaning: object = None
        """What the first who had to know made of this record; None until then."""


class PickleReader:
    """Reads the pickles of one message on one account.

    Args:
        account: What the message may ask for. The instructions of all pickles together are
            bounded by four times its limit of values.
    """

    def __init__(self, account: Account) -> None:
        self.account = account
        self._instructions = 0

    def read(
        self,
        view: View,
        allowed: Collection[Global],
        *,
        start: int = 0,
        has_persistent: Global | None = None,
    ) -> tuple[object, int]:
        """Read the pickle that begins at ``start``.

        Args:
            view: The message.
            allowed: Every class and function that the pickle may name.
            start: Where the pickle begins.
            has_persistent: What to call objects that the pickle refers to by a persistent id;
                without it such ids are refused.

        Returns:
            None, bool, int, float, str, :class:`LongText`, a view, tuple, list, dict with str
            keys, :class:`Global` or :class:`Record`; and where the pickle ends. Parts may be
            shared, and may contain themselves.

        Raises:
            UnplacedError: The bytes are no such pickle, or ask for more than the limits allow.
        """
        walk = _Walk(view, start, self.account, allowed, has_persistent)
        allowed_instructions = _INSTRUCTIONS_PER_VALUE * self.account.limits.max_values
        walk.check_head()
        while True:
            self._instructions += 1
            if self._instructions > allowed_instructions:
                raise _too_much(self._instructions, allowed_instructions, "pickle instructions")
            opcode = walk.next_opcode()
            if opcode == _STOP:
                return walk.result(), walk.position
            act = _ACTS.get(opcode)
            if act is None:
                raise _wrong("an instruction of LeRobot's pickles", f"the byte {opcode:#04x}")
            act(walk)


def shown(value: object) -> str:
    """A value of a message in a few printable characters, as part of an error."""
    return value.function.name if isinstance(value, Record) else faults.shown(value)


def shown_key(key: str) -> str:
    """A key as part of an error: as it is, unless a terminal or a log could choke on it."""
    return key if key.isprintable() else ascii(key)


_INSTRUCTIONS_PER_VALUE = 4
_PROTOCOLS = range(2, 6)
_PROTOCOL = 0x80
_STOP = ord(".")
_MAX_INTEGER_BYTES = 16
"""Bytes of an integer. PyTorch's magic number has ten; values have eight at most."""
_MAX_NAME_BYTES = 256
"""Bytes of the name of a module or class."""
_BYTE, _SHORT, _INT, _UINT, _LONG, _DOUBLE = map(Struct, ("<B", "<H", "<i", "<I", "<Q", ">d"))


class _Walk:
    """One walk over one pickle: its stack, marks and memo."""

    __slots__ = (
        "_account",
        "_allowed",
        "_end",
        "_fence",
        "_marks",
        "_max_places",
        "_memo",
        "_persistent",
        "_stack",
        "_view",
        "position",
    )

    def __init__(
        self,
        view: View,
        start: int,
        account: Account,
        allowed: Collection[Global],
        persistent: Global | None,
    ) -> None:
        self._view = view
        self._end = len(view)
        self.position = start
        self._account = account
        self._max_places = _INSTRUCTIONS_PER_VALUE * account.limits.max_values
        self._allowed = allowed
        self._persistent = persistent
        self._stack: list[object] = []
        self._marks: list[int] = []
        self._fence = 0
        """Stack entries below this one belong to an outer mark."""
        self._memo: dict[int, object] = {}

    # Reading

    def check_head(self) -> None:
        head = self._take(2)
        if head[0] != _PROTOCOL or head[1] not in _PROTOCOLS:
            raise _wrong(f"a pickle of protocol {_PROTOCOLS[0]} to {_PROTOCOLS[-1]}", "other bytes")

    def next_opcode(self) -> int:
        position = self.position
        if position >= self._end:
            raise _wrong("the next instruction", "the end of the bytes")
        self.position = position + 1
        return self._view[position]

    def result(self) -> object:
        if self._marks or len(self._stack) != 1:
            raise _wrong("one value at the end of the pickle", "another number")
        return self._stack[0]

    def _take(self, count: int) -> View:
        start, stop = self.position, self.position + count
        if stop > self._end:
            raise _wrong(f"{count} more bytes", f"{self._end - start}")
        self.position = stop
        return self._view[start:stop]

    def _number(self, form: Struct) -> Any:  # noqa: ANN401 - of the type that the form says
        start = self.position
        self.position = start + form.size
        if self.position > self._end:
            raise _wrong(f"{form.size} more bytes", f"{self._end - start}")
        return form.unpack_from(self._view, start)[0]

    def _decoded(self, utf8: View, what: str) -> str:
        try:
            return str(utf8, "utf-8")
        except UnicodeDecodeError as error:
            raise _wrong(f"{what} in UTF-8", f"the byte {error.object[error.start]:#04x}") from None

    # The stack

    def push(self, value: object) -> None:
        self._stack.append(value)

    def pop(self) -> object:
        if len(self._stack) <= self._fence:
            raise _wrong("a value before this instruction", "none")
        return self._stack.pop()

    def mark(self) -> None:
        self._account.check(len(self._marks) + 1, self._account.limits.max_depth, "open marks")
        self._marks.append(self._fence)
        self._fence = len(self._stack)

    def pop_marked(self) -> list[object]:
        """Everything since the last mark."""
        if not self._marks:
            raise _wrong("a mark before this instruction", "none")
        values = self._stack[self._fence :]
        del self._stack[self._fence :]
        self._fence = self._marks.pop()
        return values

    # Instructions

    def frame(self) -> None:
        size = self._number(_LONG)
        if size > self._end - self.position:
            raise _wrong(f"a frame of {size} bytes", f"{self._end - self.position}")

    def integer(self, form: Struct) -> None:
        self.push(self._number(form))

    def long_integer(self) -> None:
        size = self._number(_BYTE)
        self._account.check(size, _MAX_INTEGER_BYTES, "bytes in an integer")
        self.push(int.from_bytes(self._take(size), "little", signed=True))

    def text(self, form: Struct) -> None:
        size = self._number(form)
        utf8 = self._take(size)
        if size > self._account.limits.max_string_bytes:
            self.push(LongText(utf8))
            return
        self._account.charge_bytes(size)
        self.push(self._decoded(utf8, "text"))

    def bytes_(self, form: Struct) -> None:
        self.push(self._take(self._number(form)))

    def tuple_of(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(values)))

    def tuple_of_marked(self) -> None:
        self.push(tuple(self.pop_marked()))

    def append(self) -> None:
        self._extend([self.pop()])

    def append_marked(self) -> None:
        self._extend(self.pop_marked())

    def _extend(self, values: list[object]) -> None:
        self._last(list, "a list to append to").extend(values)

    def set_item(self) -> None:
        value = self.pop()
        self._set([self.pop(), value])

    def set_marked(self) -> None:
        self._set(self.pop_marked())

    def _set(self, items: list[object]) -> None:
        target = self._last(dict, "a dict to set items of")
        if len(items) % 2:
            raise _wrong("a value for every key", "a key without one")
        limits = self._account.limits
        self._account.check(len(target) + len(items) // 2, limits.max_map_keys, "keys in a dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str):
                raise _wrong("a key that is text", f"{type(key).__name__}")
            self._account.check(len(key), limits.max_key_bytes, "characters in a key")
            if key in target:
                raise _wrong("every key once", f"{shown(key)} a second time")
            target[key] = value

    def _last(self, kind: type[Any], expected: str) -> Any:  # noqa: ANN401 - of the type asked for
        if len(self._stack) <= self._fence or type(self._stack[-1]) is not kind:
            raise _wrong(expected, "something else")
        return self._stack[-1]

    def memoize(self) -> None:
        self._keep(len(self._memo))

    def put(self, form: Struct) -> None:
        self._keep(self._number(form))

    def _keep(self, place: int) -> None:
        if place > self._max_places:
            raise _too_much(place, self._max_places, "memo places")
        if len(self._stack) <= self._fence:
            raise _wrong("a value to remember", "none")
        self._memo[place] = self._stack[-1]

    def get(self, form: Struct) -> None:
        place = self._number(form)
        if place not in self._memo:
            raise _wrong("a memo place that was filled", f"{place}")
        self.push(self._memo[place])

    def global_in_lines(self) -> None:
        self._name(self._line(), self._line())

    def global_on_stack(self) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise _wrong("names of a module and a class", "something else")
        self._name(module, name)

    def _line(self) -> str:
        rest = self._view[self.position : self.position + _MAX_NAME_BYTES].tobytes()
        line, newline, _ = rest.partition(b"\n")
        if not newline:
            raise _wrong(f"a line of at most {_MAX_NAME_BYTES} bytes", "a longer one")
        self.position += len(line) + 1
        return self._decoded(memoryview(line), "a name")

    def _name(self, module: str, name: str) -> None:
        named = Global(module, name)
        if named not in self._allowed:
            raise _wrong("only classes of LeRobot's messages", shown(str(named)))
        self.push(named)

    def call(self, is_new: bool) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, Global) or type(arguments) is not tuple:
            raise _wrong("a class or function and its arguments", "something else")
        self.push(Record(function, cast("tuple[object, ...]", arguments), is_new=is_new))

    def build(self) -> None:
        state = self.pop()
        record = self._last(Record, "an object to give a state")
        if record.state is not None or state is None:
            raise _wrong("one state of an object", "none or a second one")
        record.state = state

    def persistent(self) -> None:
        if self._persistent is None:
            raise _wrong("no persistent id", "one")
        self.push(Record(self._persistent, (self.pop(),)))


def _too_much(asked: int, allowed: int, what: str) -> UnplacedError:
    return UnplacedError(LimitError, expected=f"at most {allowed} {what}", received=f"{asked}")


def _wrong(expected: str, received: str) -> UnplacedError:
    return UnplacedError(WireError, expected=expected, received=received)


# Names in the comments are those of Python's pickletools, which documents every instruction.
_ACTS: dict[int, Callable[[_Walk], None]] = {
    0x95: _Walk.frame,
    ord("N"): lambda walk: walk.push(None),
    0x88: lambda walk: walk.push(True),  # NEWTRUE
    0x89: lambda walk: walk.push(False),  # NEWFALSE
    ord("K"): lambda walk: walk.integer(_BYTE),  # BININT1
    ord("M"): lambda walk: walk.integer(_SHORT),  # BININT2
    ord("J"): lambda walk: walk.integer(_INT),  # BININT
    0x8A: _Walk.long_integer,  # LONG1
    ord("G"): lambda walk: walk.integer(_DOUBLE),  # BINFLOAT
    0x8C: lambda walk: walk.text(_BYTE),  # SHORT_BINUNICODE
    ord("X"): lambda walk: walk.text(_UINT),  # BINUNICODE
    0x8D: lambda walk: walk.text(_LONG),  # BINUNICODE8
    ord("C"): lambda walk: walk.bytes_(_BYTE),  # SHORT_BINBYTES
    ord("B"): lambda walk: walk.bytes_(_UINT),  # BINBYTES
    0x8E: lambda walk: walk.bytes_(_LONG),  # BINBYTES8
    0x96: lambda walk: walk.bytes_(_LONG),  # BYTEARRAY8
    ord("("): _Walk.mark,
    ord(")"): lambda walk: walk.push(()),  # EMPTY_TUPLE
    ord("]"): lambda walk: walk.push([]),  # EMPTY_LIST
    ord("}"): lambda walk: walk.push({}),  # EMPTY_DICT
    0x85: lambda walk: walk.tuple_of(1),
    0x86: lambda walk: walk.tuple_of(2),
    0x87: lambda walk: walk.tuple_of(3),
    ord("t"): _Walk.tuple_of_marked,
    ord("a"): _Walk.append,
    ord("e"): _Walk.append_marked,
    ord("s"): _Walk.set_item,
    ord("u"): _Walk.set_marked,
    0x94: _Walk.memoize,
    ord("q"): lambda walk: walk.put(_BYTE),  # BINPUT
    ord("r"): lambda walk: walk.put(_UINT),  # LONG_BINPUT
    ord("h"): lambda walk: walk.get(_BYTE),  # BINGET
    ord("j"): lambda walk: walk.get(_UINT),  # LONG_BINGET
    ord("c"): _Walk.global_in_lines,  # GLOBAL
    0x93: _Walk.global_on_stack,  # STACK_GLOBAL
    0x81: lambda walk: walk.call(is_new=True),  # NEWOBJ
    ord("R"): lambda walk: walk.call(is_new=False),  # REDUCE
    ord("b"): _Walk.build,
    ord("Q"): _Walk.persistent,  # BINPERSID
}
