"""What is open until it is closed, for ``with`` blocks."""

from abc import ABC, abstractmethod
from types import TracebackType
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
