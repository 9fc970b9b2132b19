"""What happens to a row before and after the network, without a network engine.

A client may send ``noise`` with its observation, flat, to have a chunk computed from known noise;
everybody else's is drawn from who asks.

Start reading at :meth:`FlowPreprocessor.write`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from takt.errors import ObservationError
from takt.policies.finite import check_finite
from takt.policies.flow import write_flow
from takt.policies.guidance import Leftover, Schedule, guided_chunking
from takt.policies.interface import FloatArray
from takt.policies.lerobot.checkpoint import FlowCheckpoint
from takt.policies.lerobot.layouts import FlowLayout, smallest
from takt.policies.lerobot.resize import write_scaled
from takt.policies.lerobot.stock_resize import squash
from takt.schema.check import RGB, check_observation
from takt.schema.observation import Observation, image_key
from takt.schema.row import Row, RowHeader, RowRequest
from takt.schema.spec import CameraSpec, PolicySpec

__all__ = ["FlowDecoder", "FlowPreprocessor"]

_NOISE_KEY = "noise"
_MAX_SHOWN = 8


class FlowPreprocessor:
    """Writes images, tokens, the normalised state and the flow inputs.

    Args:
        spec: The checkpoint's card.
        checkpoint: The checkpoint.
        stock_resize: Whether to do first what LeRobot's asynchronous server does to images.
    """

    def __init__(
        self, spec: PolicySpec, checkpoint: FlowCheckpoint, *, stock_resize: bool = False
    ) -> None:
        self.spec = spec
        self._checkpoint = checkpoint
        self._is_stock = stock_resize

    def write(
        self, observation: Observation, slot: Mapping[str, NDArray[Any]], request: RowRequest
    ) -> RowHeader:
        """Write one row; see :meth:`takt.policies.interface.Preprocessor.write`."""
        check_observation(observation, self.spec.observation)
        horizon = self._horizon(request)
        cameras = self._present(observation)
        for place, camera in enumerate(cameras):
            image = self._squashed(observation.images[camera.name], camera)
            write_scaled(image, camera, slot["images"][place])
        slot["num_images"][...] = len(cameras)
        num_tokens = self._write_tokens(observation.prompt or "", slot)
        self._write_state(np.asarray(observation.state, np.float32), slot)
        write_flow(slot, self._translated(request, np.asarray(observation.state, np.float32)))
        self._write_given_noise(observation, slot)
        layout = smallest(self._checkpoint.layouts, FlowLayout(len(cameras), num_tokens))
        return RowHeader(
            layout=layout,
            state_dim=self.spec.observation.state_dim,
            horizon=horizon,
            action_dim=self.spec.action.action_dim,
        )

    def _translated(self, request: RowRequest, state: FloatArray) -> RowRequest:
        """The request with what its robot is executing in model space, seen from ``state``."""
        executing, action = request.executing, self.spec.action
        if executing is None:
            return request
        if executing.actions.shape[1:] != (action.action_dim,):
            raise ObservationError(
                "leftover.actions",
                expected=f"steps of {action.action_dim} values",
                received=f"shape {executing.actions.shape}",
            )
        pipeline = self._checkpoint.pipeline
        relative = np.flatnonzero(pipeline.relative)
        rows = np.array(executing.actions, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            rows[:, relative] -= state[relative]
            rows = pipeline.action.forward(rows)
        guided = guided_chunking(
            Leftover(rows, executing.digest),
            digest=self.spec.digest,
            delay=executing.delay,
            execution_horizon=executing.execution_horizon or action.execution_horizon,
            horizon=action.horizon,
            model_action_dim=action.model_action_dim,
            schedule=cast("Schedule", executing.schedule),  # checked where it is used
        )
        return replace(request, chunking=guided.chunking, executing=None)

    def _present(self, observation: Observation) -> list[CameraSpec]:
        cameras = self.spec.observation.cameras
        present = [camera for camera in cameras if camera.name in observation.images]
        if len(present) == len(cameras):
            return present
        known = {camera.name for camera in cameras}
        strange = sorted(name for name in observation.images if name not in known)[:_MAX_SHOWN]
        if strange or not present:
            # A misspelt camera must not pass for one that is masked on purpose.
            missing = next(camera.name for camera in cameras if camera not in present)
            raise ObservationError(
                observation.spelling(image_key(missing)),
                expected=f"images of {', '.join(sorted(known))}, one at least and no others"
                " while one is missing",
                received=f"images of {', '.join(strange) or 'none of them'}",
            )
        return present

    def _squashed(self, image: NDArray[Any], camera: CameraSpec) -> NDArray[Any]:
        if not self._is_stock:
            return image
        pixels = image if image.shape[2] == RGB else image.transpose(1, 2, 0)
        return squash(pixels, *self._checkpoint.config.feature_sizes[camera.name])

    def _write_tokens(self, prompt: str, slot: Mapping[str, NDArray[Any]]) -> int:
        text = prompt if prompt.endswith("\n") else f"{prompt}\n"
        ids = self._checkpoint.tokenizer.encode(text)
        slot["tokens"][: len(ids)] = ids
        slot["tokens"][len(ids) :] = self._checkpoint.tokenizer.pad_id
        slot["num_tokens"][...] = len(ids)
        return len(ids)

    def _write_state(self, state: FloatArray, slot: Mapping[str, NDArray[Any]]) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # an absurd state fails its own row
            slot["state"][: state.size] = self._checkpoint.pipeline.state.forward(state)
        slot["state"][state.size :] = 0
        if "raw_state" in slot:
            slot["raw_state"][...] = state

    def _write_given_noise(
        self, observation: Observation, slot: Mapping[str, NDArray[Any]]
    ) -> None:
        """Use the client's own noise where it sends some, to compute a known chunk again."""
        if _NOISE_KEY not in observation.extra:
            return
        noise = slot["noise"]
        try:
            given = np.asarray(observation.extra[_NOISE_KEY], np.float32)
        except (TypeError, ValueError):
            given = np.zeros(0, np.float32)
        # Flat as well, since a door takes an array of two axes or more for an image.
        if given.shape not in {noise.shape, (noise.size,)} or not np.isfinite(given).all():
            raise ObservationError(
                _NOISE_KEY,
                expected=f"finite floats of shape {noise.shape}, or the same flat",
                received=f"something of shape {given.shape}",
            )
        noise[...] = given.reshape(noise.shape)

    def _horizon(self, request: RowRequest) -> int:
        most = self.spec.action.horizon
        horizon = request.horizon or most
        if horizon > most:
            raise ObservationError(
                "horizon", expected=f"1..{most} steps", received=f"{horizon} steps"
            )
        return horizon


class FlowDecoder:
    """Scales a chunk to robot units and makes relative actions absolute.

    Args:
        checkpoint: The checkpoint.
    """

    def __init__(self, checkpoint: FlowCheckpoint) -> None:
        self._action = checkpoint.pipeline.action
        self._relative = np.flatnonzero(checkpoint.pipeline.relative)

    def decode(self, chunk: FloatArray, row: Row) -> FloatArray:
        """See :meth:`takt.policies.interface.Decoder.decode`."""
        header = row.header
        with np.errstate(over="ignore", invalid="ignore"):
            actions = self._action.backward(chunk[: header.horizon, : header.action_dim])
            actions = np.array(actions, np.float32)
            if self._relative.size:
                # The state of the observation that made this chunk, never a newer one.
                actions[:, self._relative] += row.tensors["raw_state"][self._relative]
        check_finite(actions)
        return actions
