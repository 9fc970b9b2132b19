"""Damages captured messages, by a seed, in the ways that parsers trip over."""

import random
from collections.abc import Callable, Sequence

__all__ = ["Mutator"]

# Sizes and counts at the edges of what lengths of one to eight bytes can say.
_EDGES = [
    value.to_bytes(width, order, signed=False)
    for width in (1, 2, 4, 8)
    for value in (0, 1, 2 ** (8 * width - 1) - 1, 2 ** (8 * width - 1), 2 ** (8 * width) - 1)
    for order in ("big", "little")
]
_DAMAGES = (1, 1, 1, 2, 3, 6)
_MOST_BYTES = 64


class Mutator:
    """Makes inputs from a corpus.

    Args:
        corpus: Messages to begin with; short ones are taken more often, as they are mostly
            structure and little image.
        words: Byte strings that mean something to the parser.
        seed: Equal seeds make equal inputs.
    """

    def __init__(self, corpus: Sequence[bytes], words: Sequence[bytes], seed: int) -> None:
        self._random = random.Random(seed)
        self._corpus = sorted(corpus, key=len)
        self._weights = [1 / (1024 + len(data)) for data in self._corpus]
        self._words = [*words, *_EDGES]
        self._damages: list[Callable[[bytearray, int], None]] = [
            self._flip,
            self._set,
            self._insert,
            self._overwrite,
            self._delete,
            self._repeat,
            self._cut,
            self._splice,
        ]

    def next(self) -> bytes:
        """The next input."""
        (data,) = self._random.choices(self._corpus, self._weights)
        damaged = bytearray(data)
        for _ in range(self._random.choice(_DAMAGES)):
            self._random.choice(self._damages)(damaged, self._place(damaged))
        return bytes(damaged)

    def _place(self, data: bytearray) -> int:
        """Somewhere in ``data``, most often near an end: heads and tails are structure."""
        place = self._random.randint(0, len(data))
        near = self._random.choice((place, place % 1024, len(data) - place % 1024))
        return max(0, min(len(data), near))

    def _word(self) -> bytes:
        return self._random.choice(self._words)

    def _stretch(self) -> int:
        return self._random.randint(1, _MOST_BYTES)

    def _flip(self, data: bytearray, place: int) -> None:
        if place < len(data):
            data[place] ^= 1 << self._random.randrange(8)

    def _set(self, data: bytearray, place: int) -> None:
        if place < len(data):
            data[place] = self._random.randrange(256)

    def _insert(self, data: bytearray, place: int) -> None:
        data[place:place] = self._word()

    def _overwrite(self, data: bytearray, place: int) -> None:
        word = self._word()
        data[place : place + len(word)] = word

    def _delete(self, data: bytearray, place: int) -> None:
        del data[place : place + self._stretch()]

    def _repeat(self, data: bytearray, place: int) -> None:
        piece = bytes(data[place : place + self._stretch()])
        data[place:place] = piece * self._random.choice((1, 1, 1, 16, 256))

    def _cut(self, data: bytearray, place: int) -> None:
        del data[place:]

    def _splice(self, data: bytearray, place: int) -> None:
        (other,) = self._random.choices(self._corpus, self._weights)
        begin = self._random.randint(0, len(other))
        data[place:] = other[begin:]
