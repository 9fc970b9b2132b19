"""The `echo` policy: no network, an answer that shows which observation it came from.

``action[i, j] = float32(state[j]) + float32(i)``. People use it to test a robot client before they
have a checkpoint; Takt uses it to test doors, slots, batches and the scheduler, through which it
goes like any other policy. The prefix stage puts the state into the key/value cache and the
denoise stage reads it from there, so a wrong cache slot shows in the answer.

It declares maximum shapes; the sizes of each row travel in its header. Latency is spent as waiting:
:meth:`EchoNetwork.launch_time` says how long, the lane waits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from takt.core.request import Stage
from takt.errors import ConfigError, ObservationError, RefusedError
from takt.policies.finite import check_finite
from takt.policies.interface import FloatArray, Placement
from takt.schema.check import check_observation
from takt.schema.observation import PROMPT_KEY, STATE_KEY, Observation, image_key
from takt.schema.plain import observation_spec_from_plain
from takt.schema.row import Row, RowHeader, RowRequest
from takt.schema.spec import ActionSpec, ObservationSpec, PolicySpec, TensorSpec
from takt.units import Nanos, ms

__all__ = [
    "FAIL_STATE",
    "MAX_CHUNK_VALUES",
    "MAX_HORIZON",
    "MAX_IMAGES",
    "MAX_IMAGE_AXES",
    "MAX_STATE_DIM",
    "MAX_STRICT_SPEC_BYTES",
    "SIZES",
    "EchoDecoder",
    "EchoNetwork",
    "EchoOptions",
    "EchoPreprocessor",
    "echo_spec",
]

FAIL_STATE = np.float32(-31337.0)
"""First state value that makes the inference fail, on demand."""

MAX_STATE_DIM = 2048
MAX_HORIZON = 1000
MAX_CHUNK_VALUES = 1 << 17
"""Largest answer: what a reply between worker and gateway carries."""
MAX_IMAGES = 16
MAX_IMAGE_AXES = 5
MAX_STRICT_SPEC_BYTES = 1 << 20
SIZES = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoOptions:
    """How the echo policy behaves."""

    horizon: int = 50
    """Steps in a chunk when the client asks for no number of its own."""
    latency_ms: float = 0.0
    """Time of a prefix launch and a denoise launch together."""
    latency_per_row_ms: float = 0.0
    """Added to it for each row of the batch."""
    prefix_share: float = 0.5
    """Share of both that the prefix stage takes, 0 to 1."""
    strict_spec: Path | None = None
    """JSON file with an observation spec, or a policy's card: observations that do not fit it are
    refused as a real policy would."""

    def __post_init__(self) -> None:
        if not 1 <= self.horizon <= MAX_HORIZON:
            raise ConfigError(f"horizon must lie in 1..{MAX_HORIZON}, got {self.horizon}")
        for name in ("latency_ms", "latency_per_row_ms"):
            if not 0 <= getattr(self, name) <= 3_600_000:  # noqa: PLR2004 - an hour
                raise ConfigError(f"{name} must lie in 0..3600000, got {getattr(self, name)}")
        if not 0 <= self.prefix_share <= 1:
            raise ConfigError(f"prefix_share must lie in 0..1, got {self.prefix_share}")


def echo_spec(name: str, options: EchoOptions) -> PolicySpec:
    """The card of an echo policy.

    Raises:
        ConfigError: The strict spec cannot be read.
    """
    state = TensorSpec(name="state", shape=(MAX_STATE_DIM,))
    strict = _strict_spec(options)
    return PolicySpec(
        name=name,
        architecture="echo",
        observation=strict or ObservationSpec(state_dim=MAX_STATE_DIM),
        action=ActionSpec(
            action_dim=MAX_STATE_DIM,
            model_action_dim=MAX_STATE_DIM,
            horizon=MAX_HORIZON,
            execution_horizon=options.horizon,
        ),
        prefix_inputs=(state,),
        kv=(state,),
        denoise_inputs=(state,),
        prefix_sizes=SIZES,
        denoise_sizes=SIZES,
        sizes_are_maxima=True,
    )


class EchoPreprocessor:
    """Checks what it is sent and writes the state.

    Args:
        spec: From :func:`echo_spec`.
        options: The same options.
    """

    def __init__(self, spec: PolicySpec, options: EchoOptions) -> None:
        self.spec = spec
        self._options = options
        self._is_strict = options.strict_spec is not None

    def write(
        self, observation: Observation, slot: Mapping[str, NDArray[Any]], request: RowRequest
    ) -> RowHeader:
        """Write the state; see :meth:`takt.policies.interface.Preprocessor.write`."""
        if self._is_strict:
            check_observation(observation, self.spec.observation)
        state = _flat_state(observation)
        _check_images(observation)
        _check_prompt(observation)
        horizon = request.horizon or self._options.horizon
        most = min(MAX_HORIZON, MAX_CHUNK_VALUES // state.size)
        if horizon > most:
            expected = f"1..{most} steps for {state.size} state values"
            raise ObservationError("horizon", expected=expected, received=str(horizon))
        with np.errstate(over="ignore", invalid="ignore"):
            slot["state"][: state.size] = state
        slot["state"][state.size :] = 0
        return RowHeader(state_dim=state.size, horizon=horizon, action_dim=state.size)


class EchoNetwork:
    """Carries states through the key/value cache.

    Args:
        spec: From :func:`echo_spec`.
        options: The same options.
        placement: Only the number of cache slots matters.
    """

    def __init__(self, spec: PolicySpec, options: EchoOptions, placement: Placement) -> None:
        self.spec = spec
        self._options = options
        self._kv_slots = placement.kv_slots
        self._kv = np.zeros((0, MAX_STATE_DIM), np.float32)

    def load(self) -> None:
        """Take the memory of the cache."""
        self._kv = np.zeros((self._kv_slots, MAX_STATE_DIM), np.float32)

    def warm(self) -> None:
        """Touch every page of the cache."""
        self._kv[...] = 0

    def enter_lane(self, stage: Stage) -> None:
        """Nothing is bound to a thread."""

    def prefix(
        self, rows: Sequence[Row], *, size: int, layout: int, kv_slots: Sequence[int]
    ) -> None:
        """Put each state into its cache slot."""
        del size, layout
        for row, kv_slot in zip(rows, kv_slots, strict=True):
            width = row.header.state_dim
            self._kv[kv_slot, :width] = row.tensors["state"][:width]

    def denoise(
        self, rows: Sequence[Row], *, size: int, layout: int, kv_slots: Sequence[int]
    ) -> FloatArray:
        """Count up from each cached state; shape ``(n, longest horizon, widest state)``."""
        del size, layout
        horizon = max(row.header.horizon for row in rows)
        width = max(row.header.state_dim for row in rows)
        steps = np.arange(horizon, dtype=np.float32)[:, None]
        chunks = np.empty((len(rows), horizon, width), np.float32)
        for chunk, kv_slot in zip(chunks, kv_slots, strict=True):
            state = self._kv[kv_slot, :width]
            np.add(state, steps, out=chunk)
            if state[0] == FAIL_STATE:
                chunk[...] = np.nan
        return chunks

    def launch_time(self, stage: Stage, rows: int) -> Nanos:
        """The stage's share of the latency of ``rows`` rows."""
        options = self._options
        share = options.prefix_share if stage is Stage.PREFIX else 1.0 - options.prefix_share
        return ms(share * (options.latency_ms + rows * options.latency_per_row_ms))

    def close(self) -> None:
        """Give back the cache."""
        self._kv = np.zeros((0, MAX_STATE_DIM), np.float32)


class EchoDecoder:
    """Cuts a chunk to the row's own sizes."""

    def decode(self, chunk: FloatArray, row: Row) -> FloatArray:
        """See :meth:`takt.policies.interface.Decoder.decode`."""
        header = row.header
        if row.tensors["state"][0] == FAIL_STATE:
            raise RefusedError(
                f"inference failed on demand: the first state value is {FAIL_STATE:.0f}",
                code="failed",
            )
        actions = chunk[: header.horizon, : header.action_dim].copy()
        check_finite(actions)
        return actions


def _flat_state(observation: Observation) -> NDArray[Any]:
    key = observation.spelling(STATE_KEY)
    if observation.state is None:
        raise ObservationError(key, expected="a state", received="no such key")
    state = np.asarray(observation.state).ravel()
    if state.dtype.kind not in "fiub":
        raise ObservationError(key, expected="real numbers", received=f"dtype {state.dtype}")
    if not 1 <= state.size <= MAX_STATE_DIM:
        raise ObservationError(
            key, expected=f"1..{MAX_STATE_DIM} values", received=f"{state.size} values"
        )
    return state


def _check_images(observation: Observation) -> None:
    if len(observation.images) > MAX_IMAGES:
        received = f"{len(observation.images)} images"
        raise ObservationError("images", expected=f"at most {MAX_IMAGES}", received=received)
    for camera, image in observation.images.items():
        key = observation.spelling(image_key(camera))
        if image.dtype.kind not in "uif":
            received = f"dtype {image.dtype}"
            raise ObservationError(key, expected="integer or float pixels", received=received)
        if not 2 <= image.ndim <= MAX_IMAGE_AXES or image.size == 0:  # noqa: PLR2004 - a picture
            received = f"shape {image.shape}"
            raise ObservationError(key, expected="an image that is not empty", received=received)


def _check_prompt(observation: Observation) -> None:
    prompt = cast("object", observation.prompt)
    if prompt is not None and not isinstance(prompt, str):
        raise ObservationError(
            observation.spelling(PROMPT_KEY), expected="text", received=type(prompt).__name__
        )


def _strict_spec(options: EchoOptions) -> ObservationSpec | None:
    path = options.strict_spec
    if path is None:
        return None
    try:
        if path.stat().st_size > MAX_STRICT_SPEC_BYTES:
            raise ConfigError(f"{path}: a spec has at most {MAX_STRICT_SPEC_BYTES} bytes")
        plain: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the strict spec: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    try:
        spec = observation_spec_from_plain(plain)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if spec.state_dim > MAX_STATE_DIM:
        raise ConfigError(f"{path}: state_dim must be at most {MAX_STATE_DIM}")
    return spec
