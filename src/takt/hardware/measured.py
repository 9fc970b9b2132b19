"""The profile of a device that was measured, as ``takt profile`` writes it and others read it.

A file holds the times, what they are times of (device, engine, versions, precision), the models
that were measured as they may be scheduled, and how well the times are known: the relative error
that was asked, the entries that missed it, and which pairs of launches were measured and which
interpolated. It bears no date: equal measurements give equal files.

Start reading at :meth:`MeasuredProfile.read`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct

from takt.core.model import Model
from takt.core.profile import PARTS, Profile, Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.files import replacing
from takt.units import ms, to_ms

__all__ = ["MAX_PROFILE_BYTES", "MeasuredProfile", "ProfileHeader"]

MAX_PROFILE_BYTES = 64 << 20
"""Largest file that is read: some hundred times that of four models on a GPU."""
_VERSION = 1

_Sizes = tuple[Annotated[int, Meta(ge=1, le=65_536)], ...]


class ProfileHeader(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the times are times of, and how well they are known."""

    device: str
    """The device, with the cores of its lanes where they are cores."""
    engine: str
    """What runs the networks, with its version; ``paced`` where nothing is computed."""
    versions: dict[str, str]
    """Versions of what else has a say."""
    precision: str
    """Number format inside the networks."""
    relative_error: float
    """Half-width of the interval of each median that was asked, over the median."""
    confidence: float
    """Confidence of these intervals."""
    cut_off: tuple[str, ...] = ()
    """Entries whose interval is still wider, because their runs or their time were up."""
    num_pairs_measured: int = 0
    num_pairs_interpolated: int = 0
    interpolation: str = ""
    """How pairs that were not measured got their slowdowns."""


class _ProfiledModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    architecture: str
    slo_ms: Annotated[float, Meta(gt=0, le=1e7)]
    prefix_sizes: _Sizes
    denoise_sizes: _Sizes = ()
    steps: Annotated[int, Meta(ge=1, le=100_000)] = 1
    holds: tuple[int, ...] = (1,)


class _Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    takt_profile: int
    header: ProfileHeader
    models: dict[str, _ProfiledModel]
    profile: dict[str, Any]
    measured_pairs: tuple[tuple[int, int], ...] = ()
    """Numbers of a prefix and a denoise launch in the profile's ``solo``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProfile:
    """A measured device and the models it was measured with."""

    header: ProfileHeader
    models: tuple[Model, ...]
    profile: Profile
    measured_pairs: frozenset[tuple[Work, Work]] = frozenset()
    """Pairs of a prefix and a denoise launch that ran side by side; all others of the profile are
    interpolated."""

    @classmethod
    def read(cls, path: Path) -> MeasuredProfile:
        """The profile at ``path``.

        Raises:
            ConfigError: It cannot be read, or is not such a file; the message names it.
        """
        try:
            size = path.stat().st_size
            content = path.read_bytes() if size <= MAX_PROFILE_BYTES else b""
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        if size > MAX_PROFILE_BYTES:
            raise ConfigError(f"{path}: a profile has at most {MAX_PROFILE_BYTES} bytes")
        if not content:
            raise ConfigError(f"{path}: the file is empty; expected a profile of takt profile")
        try:
            return cls.from_json(content)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def write(self, path: Path) -> None:
        """Write it to ``path``; a file that is there is replaced as a whole.

        Raises:
            ConfigError: It cannot be written.
        """
        try:
            with replacing(path) as fresh:
                fresh.write_bytes(self.to_json())
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None

    def to_json(self) -> bytes:
        """The content of its file."""
        plain = self.profile.to_json()
        index = {work: number for number, work in enumerate(_works(plain))}
        pairs = sorted((index[prefix], index[denoise]) for prefix, denoise in self.measured_pairs)
        document = _Document(
            takt_profile=_VERSION,
            header=self.header,
            models={model.name: _plain_model(model) for model in self.models},
            profile=plain,
            measured_pairs=tuple(pairs),
        )
        return msgspec.json.encode(document, order="sorted") + b"\n"

    @classmethod
    def from_json(cls, content: bytes) -> MeasuredProfile:
        """The profile that :meth:`to_json` wrote.

        Raises:
            ConfigError: ``content`` is not such a profile.
        """
        try:
            document = msgspec.json.decode(content, type=_Document)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"not a profile of takt profile: {error}") from None
        if document.takt_profile != _VERSION:
            raise ConfigError(f"takt_profile: expected {_VERSION}, got {document.takt_profile}")
        profile = Profile.from_json(document.profile)
        works = _works(document.profile)
        try:
            pairs = frozenset((works[a], works[b]) for a, b in document.measured_pairs)
        except IndexError:
            raise ConfigError("measured_pairs: a number is not one of solo") from None
        measured = cls(
            header=document.header,
            models=tuple(_model(name, entry) for name, entry in document.models.items()),
            profile=profile,
            measured_pairs=pairs,
        )
        measured._check()
        return measured

    def model(self, name: str) -> Model:
        """A model that was measured.

        Raises:
            ConfigError: It was not; the message names those that were.
        """
        for model in self.models:
            if model.name == name:
                return model
        known = ", ".join(model.name for model in self.models) or "none"
        raise ConfigError(f"the profile has no model {name!r}; it has: {known}")

    def profile_for(self, models: Sequence[Model]) -> Profile:
        """The times under the names by which ``models`` look theirs up.

        Args:
            models: Models that were measured, by their names; their ``architecture`` may be called
                otherwise, as where a worker keeps its models apart.

        Raises:
            ConfigError: A model, or one of its batch sizes or layouts, was not measured.
        """
        keys = {model.architecture: self._checked(model).architecture for model in models}
        if all(key == known for key, known in keys.items()):
            return self.profile
        return _renamed(self.profile, keys)

    def _checked(self, model: Model) -> Model:
        known = self.model(model.name)
        for stage in Stage:
            missing = sorted({*model.sizes(stage)} - {*known.sizes(stage)})
            if missing:
                raise ConfigError(
                    f"the profile has no {stage.name.lower()} launch of {missing[0]} rows of"
                    f" {model.name!r}; measured: {', '.join(map(str, known.sizes(stage)))}"
                )
        if model.holds != known.holds:
            raise ConfigError(f"the profile has other layouts of {model.name!r} than it has here")
        return known

    def _check(self) -> None:
        """Look up whatever a scheduler may, so that a torn file is refused before it serves."""
        profile, units = self.profile, self.profile.units
        prefixes = [it for model in self.models for it in _launches(model, Stage.PREFIX, units)]
        denoises = [it for model in self.models for it in _launches(model, Stage.DENOISE, units)]
        for work in (*prefixes, *denoises):
            profile.solo(work)
        for prefix in dict.fromkeys(prefixes):
            for denoise in dict.fromkeys(denoises):
                profile.best_share(prefix, denoise, PARTS)


def _launches(model: Model, stage: Stage, share: int) -> list[Work]:
    return [
        Work(model.architecture, stage, layout, size, share)
        for layout in range(len(model.holds))
        for size in model.sizes(stage)
    ]


def _works(plain: Mapping[str, Any]) -> list[Work]:
    rows = cast("list[list[Any]]", plain["solo"])
    return [Work(row[0], Stage(row[1]), *row[2:5]) for row in rows]


def _renamed(profile: Profile, keys: Mapping[str, str]) -> Profile:
    """The entries of ``profile`` under other names; one may get several."""
    plain = profile.to_json()
    names: dict[str, list[str]] = {}
    for key, known in keys.items():
        names.setdefault(known, []).append(key)
    solo: list[list[Any]] = []
    copies: dict[int, list[int]] = {}
    for number, row in enumerate(cast("list[list[Any]]", plain["solo"])):
        for name in names.get(row[0], ()):
            copies.setdefault(number, []).append(len(solo))
            solo.append([name, *row[1:]])
    speed = [
        [one, other, row[2]]
        for row in cast("list[list[int]]", plain["speed"])
        for one in copies.get(row[0], ())
        for other in copies.get(row[1], ())
    ]
    return Profile.from_json({**plain, "solo": solo, "speed": speed, "transfer": []})


def _plain_model(model: Model) -> _ProfiledModel:
    return _ProfiledModel(
        architecture=model.architecture,
        slo_ms=to_ms(model.slo),
        prefix_sizes=model.prefix_sizes,
        denoise_sizes=model.denoise_sizes,
        steps=model.steps,
        holds=model.holds,
    )


def _model(name: str, entry: _ProfiledModel) -> Model:
    model = Model(
        name=name,
        architecture=entry.architecture,
        slo=ms(entry.slo_ms),
        prefix_sizes=entry.prefix_sizes,
        denoise_sizes=entry.denoise_sizes,
        steps=entry.steps,
    )
    return replace(model, holds=entry.holds)
