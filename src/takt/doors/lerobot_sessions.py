"""Sessions of the LeRobot door: which model a robot asks for, and what it goes on with.

Start reading at :meth:`Sessions.set_up`.
"""

from __future__ import annotations

from collections.abc import Callable

from takt.doors.lerobot_keys import features_of, features_seen
from takt.doors.lerobot_options import LerobotModelOptions, LerobotOptions, aliases_of
from takt.doors.lerobot_peers import Peer
from takt.doors.lerobot_records import SessionRecords, check_size
from takt.doors.lerobot_robot import LerobotRobot, Served
from takt.errors import RefusedError
from takt.gateway.gateway import Gateway
from takt.session.features import difference
from takt.session.resuming import CannotResumeError, OnlyModel, Resumed, SessionRecord, resume
from takt.units import Nanos, seconds
from takt.wire.lerobot import LerobotObservation, LerobotSetup
from takt.wire.lerobot_objects import Spelling

__all__ = ["Sessions"]

_MAX_SHOWN_NAME = 200


class Sessions:
    """Begins the sessions of a door.

    Args:
        gateway: Whose models.
        options: The models' options.
        records: Remembers what sessions are known by.
        clock: Monotonic, in nanoseconds; the gateway's.

    Raises:
        ConfigError: An option of a model is impossible.
    """

    def __init__(
        self,
        gateway: Gateway,
        options: LerobotOptions,
        records: SessionRecords,
        clock: Callable[[], Nanos],
    ) -> None:
        self._gateway = gateway
        self._options = options
        self._records = records
        self._clock = clock
        self._aliases = aliases_of(gateway.models, options.models)
        for name, given in options.models.items():
            if given.similar_state is not None:
                given.similar_state.tolerance_for(gateway.spec(name))

    def set_up(self, peer: Peer, setup: LerobotSetup) -> str:
        """Begin the session that a handshake asks for; the name of its model.

        Raises:
            RefusedError: There is no such model (``unknown_model``), the robot does not fit it
                (``features``), or its names are too long (``limit``); the connection's old session
                goes on.
        """
        model = self._model(setup.pretrained_name_or_path)
        features = features_of(setup)
        faults = difference(features, self._gateway.spec(model))
        if faults:
            raise RefusedError(
                f"this robot does not fit model {model!r}: {'; '.join(faults)}", code="features"
            )
        record = SessionRecord(
            address=peer.address,
            model=model,
            features=features,
            actions_per_chunk=setup.actions_per_chunk,
            spelling=setup.spelling.value,
        )
        check_size(record)
        peer.begin_anew()
        self._open(peer, record)
        return model

    def resume(self, peer: Peer, observation: LerobotObservation) -> Resumed:
        """Begin a session for a connection that has had no handshake; what it goes on with.

        Raises:
            RefusedError: It must shake hands (``no_session``), or two clients are on it
                (``shared``).
        """
        if peer.is_shared:
            peer.check()
        if peer.has_greeted:
            raise CannotResumeError(
                "this connection began anew with Ready; send SendPolicyInstructions first"
            )
        try:
            found = resume(
                self._records.candidates(self._clock()),
                address=peer.address,
                timestep=observation.timestep,
                keys=observation.values,
                only_model=self._only_model(observation),
            )
            self._check_fit(found)
        except CannotResumeError as error:
            peer.refuse(error)
            raise
        record = SessionRecord(
            address=peer.address,
            model=found.model,
            features=found.features,
            actions_per_chunk=found.actions_per_chunk,
            spelling=found.spelling,
            last_timestep=observation.timestep,
        )
        self._open(peer, record)
        if found.used is not None:
            self._records.forget(found.used)
        return found

    def _model(self, asked: str) -> str:
        models = self._gateway.models
        model = asked if asked in models else self._aliases.get(asked)
        if model not in models:
            shown = asked if len(asked) <= _MAX_SHOWN_NAME else f"{asked[:_MAX_SHOWN_NAME]}..."
            raise RefusedError(
                f"no model {shown!r} here; this server has: {', '.join((*models, *self._aliases))};"
                " an alias lets robots ask by another name",
                code="unknown_model",
            )
        readiness = self._gateway.readiness(model)
        if readiness.state == "failed":
            raise RefusedError(f"model {model!r} could not be loaded", code="failed")
        return model

    def _check_fit(self, found: Resumed) -> None:
        """The server may have been started again with other models than the robot shook hands for.

        Raises:
            CannotResumeError: Its model is gone, or takes other joints or cameras by now.
        """
        if found.model not in self._gateway.models:
            raise CannotResumeError(
                f"model {found.model!r} is no longer served; restart the robot client"
            )
        faults = difference(found.features, self._gateway.spec(found.model))
        if faults:
            raise CannotResumeError(
                f"model {found.model!r} has changed: {'; '.join(faults)}; restart the robot client"
            )

    def _open(self, peer: Peer, record: SessionRecord) -> None:
        spec = self._gateway.spec(record.model)
        options = self._options.models.get(record.model, LerobotModelOptions())
        similar = options.similar_state
        served = Served(
            model=record.model,
            features=record.features,
            actions_per_chunk=record.actions_per_chunk,
            horizon=min(record.actions_per_chunk, spec.action.horizon),
            period=seconds(1.0 / (spec.action.control_hz or self._options.fps)),
            tolerance=None if similar is None else similar.tolerance_for(spec),
            spelling=Spelling(record.spelling),
        )
        robot = LerobotRobot(self._gateway, served, self._clock)
        peer.open(robot, self._records.open(record))

    def _only_model(self, observation: LerobotObservation) -> OnlyModel | None:
        if len(self._gateway.models) != 1:
            return None
        model = self._gateway.models[0]
        spec = self._gateway.spec(model)
        features = features_seen(observation, spec)
        if features is None or difference(features, spec):
            return None
        return OnlyModel(
            name=model,
            features=features,
            actions_per_chunk=spec.action.execution_horizon,
            spelling=observation.spelling.value,
        )
