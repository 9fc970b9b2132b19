"""What is open until it is closed, for ``with`` blocks."""

from abc import ABC, abstractmethod
from typing import TypeVar

__all__ = ["Closing"]

T = TypeVar("T", bound="Closing")


class Closing(ABC):
    """Is closed when the ``with`` block it is given to ends, however it ends."""

    @abstractmethod
    def close(self) -> None:
        """End it."""

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
