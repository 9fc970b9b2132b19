"""What was measured before, so that a second profile takes seconds and a stopped one goes on.

One file of lines per device, engine with its version, other versions and precision; each line is
one entry, a launch or a pair of an architecture, written when it is known. A line that was cut
short by a kill is passed over.

Start reading at :meth:`Cache.find`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from takt.core.profile import Work
from takt.errors import ConfigError
from takt.files import replacing
from takt.runtime.profiling.median import Median

__all__ = ["Cache", "cache_folder", "cache_path"]


class _Line(NamedTuple):
    key: str
    medians: tuple[Median, ...]


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where caches lie: ``takt/profiles`` in the user's cache folder."""
    given = environment.get("XDG_CACHE_HOME", "")
    # The specification says that a relative path is to be ignored.
    root = Path(given) if given.startswith("/") else Path.home() / ".cache"
    return root / "takt" / "profiles"


def cache_path(folder: Path, device: str, *rest: object) -> Path:
    """The file of one device under one engine, by whatever else has a say."""
    digest = blake2b(repr((device, *rest)).encode(), digest_size=6).hexdigest()
    slug = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")[:80]
    return folder / f"{slug}-{digest}.jsonl"


class Cache:
    """The entries of one file.

    Args:
        path: The file; None keeps nothing.
        digests: For each architecture, what else its times depend on.
        refresh: Forget what is in it.

    Raises:
        ConfigError: The file cannot be read or made.
    """

    def __init__(
        self, path: Path | None, digests: Mapping[str, str], *, refresh: bool = False
    ) -> None:
        self.path = path
        self._digests = digests
        self._known: dict[str, tuple[Median, ...]] = {}
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            content = b"" if refresh or not path.exists() else path.read_bytes()
            # What a kill cut short ends here; the next line begins on its own.
            with replacing(path) as fresh:
                fresh.write_bytes(content[: content.rfind(b"\n") + 1])
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}; the cache is there") from None
        for line in content.splitlines():
            self._take(line)

    def find(self, *works: Work) -> tuple[Median, ...] | None:
        """What is known of a launch, or of two side by side."""
        return self._known.get(self._key(works))

    def keep(self, medians: Sequence[Median], *works: Work) -> None:
        """Note what was measured.

        Raises:
            ConfigError: The file cannot be written.
        """
        key = self._key(works)
        self._known[key] = tuple(medians)
        if self.path is None:
            return
        line = msgspec.json.encode((key, medians))
        try:
            with self.path.open("ab") as file:
                file.write(line + b"\n")
        except OSError as error:
            raise ConfigError(f"{self.path}: {error.strerror}; the cache is there") from None

    def _take(self, content: bytes) -> None:
        try:
            line = msgspec.json.decode(content, type=_Line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        self._known[line.key] = line.medians

    def _key(self, works: Sequence[Work]) -> str:
        return " beside ".join(
            f"{work.architecture}:{self._digests.get(work.architecture, '')}"
            f" {work.stage.name.lower()} {work.layout} {work.size} {work.share}"
            for work in works
        )
