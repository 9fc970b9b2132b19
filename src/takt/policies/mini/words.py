"""Instructions to word numbers, over a closed vocabulary."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from takt.errors import ConfigError, ObservationError

__all__ = ["FIRST_WORD", "MAX_SHOWN_LETTERS", "PADDING", "UNKNOWN", "WordTokenizer", "split_words"]

PADDING = 0
"""Number of the place after the last word."""
UNKNOWN = 1
"""Number of a word that is not in the vocabulary."""
FIRST_WORD = 2
MAX_SHOWN_LETTERS = 80


def split_words(text: str) -> list[str]:
    """Words of a text in lower case; everything but letters and digits parts them."""
    return re.findall(r"[^\W_]+", text.lower())


class WordTokenizer:
    """Turns an instruction into a fixed number of word numbers.

    Args:
        vocabulary: The known words; word ``i`` has number ``i + 2``.
        num_words: Numbers per instruction.

    Raises:
        ConfigError: A word comes twice or is none.
    """

    def __init__(self, vocabulary: Sequence[str], num_words: int) -> None:
        self._num_words = num_words
        self._numbers = {word: FIRST_WORD + i for i, word in enumerate(vocabulary)}
        bad = [word for word in vocabulary if split_words(word) != [word]]
        if bad or len(self._numbers) != len(vocabulary):
            raise ConfigError(f"vocabulary: words must differ and be lower-case, got {bad[:3]}")

    @property
    def size(self) -> int:
        """Rows of the word table: padding, unknown and the known words."""
        return FIRST_WORD + len(self._numbers)

    def encode(self, instruction: str, key: str = "prompt") -> NDArray[np.int32]:
        """Word numbers of an instruction.

        Args:
            instruction: What the robot shall do. Single unknown words are allowed.
            key: The client's name for it, for errors.

        Returns:
            Shape ``(num_words,)``, padded at the end.

        Raises:
            ObservationError: It has too many words, or none that the policy knows.
        """
        words = split_words(instruction)
        if len(words) > self._num_words:
            raise ObservationError(
                key, expected=f"at most {self._num_words} words", received=f"{len(words)} words"
            )
        numbers = [self._numbers.get(word, UNKNOWN) for word in words]
        if all(number == UNKNOWN for number in numbers):
            raise ObservationError(
                key,
                expected=f"words this policy knows, such as {', '.join(list(self._numbers)[:6])}",
                received=repr(instruction[:MAX_SHOWN_LETTERS]),
            )
        tokens = np.full(self._num_words, PADDING, np.int32)
        tokens[: len(numbers)] = numbers
        return tokens
