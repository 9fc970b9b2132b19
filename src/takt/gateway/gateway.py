"""Robots' requests from a door to a worker and back.

A door takes a :class:`~takt.gateway.connection.GatewayConnection` from :meth:`Gateway.connect` and
asks for chunks there. The gateway lives on one event loop and is woken by messages and timers only;
nobody polls.

A request's way: :meth:`Gateway.accept` offers it to its session; when a slot is free it is started,
its row is written (:mod:`takt.gateway.rows`), it goes to a worker (:mod:`takt.gateway.dispatch`),
and :meth:`Gateway.finish` answers it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping

from takt.errors import ConfigError, RefusedError
from takt.gateway.config import GatewayConfig
from takt.gateway.connection import GatewayConnection
from takt.gateway.dispatch import Dispatcher, EventSink, not_served
from takt.gateway.expiries import Expiries
from takt.gateway.models import GatewayModel, Readiness, open_each, slots_for
from takt.gateway.request import Answer, GatewayRequest, Wanted
from takt.gateway.robots import RobotsSeen
from takt.gateway.rows import RowWriter
from takt.link.arena import Arena
from takt.link.channel import Channel
from takt.link.listener import connect as connect_to
from takt.schema.observation import Observation
from takt.schema.row import RowHeader
from takt.schema.spec import PolicySpec
from takt.session.session import Pending, Session, SessionRules
from takt.session.table import Closed, SecondConnection, SessionTable
from takt.session.timing import resolve_timing
from takt.units import Nanos, ms, to_ms

__all__ = ["Gateway"]


def _ignore(_: str, __: Mapping[str, object]) -> None:
    """Nobody watches."""


class Gateway:
    """Sessions, slots and workers of one gateway process.

    Create it on the running event loop, then :meth:`start` it.

    Args:
        config: What it serves and whom it dials.
        on_event: Told of ``ready``, ``model_failed``, ``worker_lost``, ``worker_back`` and
            ``worker_hung``.
        clock: Monotonic, in nanoseconds; on the workers' host it is their clock too.
        connect: Makes a channel to a worker's address.

    Raises:
        ConfigError: A model cannot be opened, or there is not enough memory for the slots.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        on_event: EventSink = _ignore,
        clock: Callable[[], Nanos] = time.monotonic_ns,
        connect: Callable[[str], Channel] = connect_to,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.config = config
        self.counters: Counter[str] = Counter()
        """Requests accepted, served, cancelled, and refused by code, since the start."""
        self.clock = clock
        self._on_event = on_event
        self._models, self._unopened = open_each(config.models)
        self._sessions: SessionTable[GatewayRequest] = SessionTable(
            rules=SessionRules(supersede=config.supersede),
            second_connection=SecondConnection(config.second_connection),
            allowance=ms(config.network_allowance_ms),
            max_sessions=config.max_sessions,
            max_per_connection=config.max_sessions_per_connection,
        )
        self._robots = RobotsSeen(clock())
        self._connections: dict[int, GatewayConnection] = {}
        self._next_connection = 0
        self._num_open = 0
        self._has_waiting = False
        self._is_pumping = False
        self._drain_reason: str | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._arena = Arena.create(slots_for(self._models.values(), config))
        self._rows = RowWriter(
            self._arena,
            seed=config.seed,
            num_threads=config.preprocess_threads,
            on_written=self._row_written,
            loop=loop,
        )
        self._expiries = Expiries(loop, clock, self._expire)
        self._dispatcher = Dispatcher(
            workers=config.workers,
            models=self._models,
            arena=self._arena,
            epoch=secrets.randbits(63),
            gateway=config.name,
            seed=config.seed,
            supersede=config.supersede,
            hang=ms(config.hang_ms),
            connect=connect,
            timers=loop,
            clock=clock,
            on_finished=self.finish,
            on_freed=self._pump,
            on_event=on_event,
        )

    # What a door sees

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models, the default first."""
        default, known = self.config.default, [*self._models, *self._unopened]
        return (default, *(name for name in known if name != default))

    def spec(self, model: str) -> PolicySpec:
        """The card of a model.

        Raises:
            RefusedError: There is no such model (``unknown_model``).
        """
        return self.model(model).spec

    def model(self, name: str) -> GatewayModel:
        """A model that is served.

        Raises:
            RefusedError: There is no such model (``unknown_model``), or it could not be opened.
        """
        model = self._models.get(name)
        if name in self._unopened:
            self.counters["refused.failed"] += 1
            raise not_served(name, self.readiness(name))
        if model is None:
            self.counters["refused.unknown_model"] += 1
            raise RefusedError(
                f"no model {name!r} here; this server has: {', '.join(self.models)}",
                code="unknown_model",
            )
        return model

    def readiness(self, model: str) -> Readiness:
        """Whether a model is served now.

        Raises:
            RefusedError: There is no such model (``unknown_model``).
        """
        if model in self._unopened:
            return Readiness(state="failed", reason=self._unopened[model])
        return self._dispatcher.readiness(self.model(model).name)

    @property
    def drain_reason(self) -> str | None:
        """Why no new requests are taken; None while they are."""
        return self._drain_reason

    def connect(self, on_displaced: Callable[[str | None], None]) -> GatewayConnection:
        """A new connection of a door.

        Args:
            on_displaced: Called with the robot id when a robot of this connection has connected
                elsewhere and its session here has ended.
        """
        self._next_connection += 1
        connection = GatewayConnection(self, self._next_connection, on_displaced)
        self._connections[self._next_connection] = connection
        return connection

    def statistics(self) -> dict[str, int]:
        """Every counter by name."""
        dropped = {f"dropped.{why.value}": n for why, n in self._dispatcher.dropped.items()}
        return {
            **self.counters,
            **self._dispatcher.counters,
            **dropped,
            "sessions": len(self._sessions),
            "under_way": self._num_open,
            "slots_free": self._dispatcher.num_free,
        }

    def robots(self, lately: Nanos) -> dict[str, object]:
        """The robots that have asked lately, see :meth:`~takt.gateway.robots.RobotsSeen.report`."""
        return self._robots.report(lately, self.clock())

    # Life

    def start(self) -> None:
        """Dial the workers."""
        for model, reason in self._unopened.items():
            self._on_event("model_failed", {"model": model, "reason": reason})
        self._dispatcher.start()

    def add_model(self, model: GatewayModel) -> None:
        """Let robots ask for one more model, as soon as a worker serves it.

        Raises:
            ConfigError: Its name is taken, or its rows are too large for the slots.
        """
        if model.name in self._models:
            raise ConfigError(f"there is a model {model.name!r}; unload it first")
        most = self._arena.geometry.slot_bytes
        if model.layout.slot_bytes > most:
            raise ConfigError(
                f"a row of {model.name!r} takes {model.layout.slot_bytes} bytes, a slot has {most};"
                " start the server with this model, or with a larger reserved_row_bytes"
            )
        self._unopened.pop(model.name, None)
        self._models[model.name] = model

    def remove_model(self, name: str) -> None:
        """Let robots ask for a model no longer; what is under way is answered.

        Raises:
            ConfigError: It is the default.
        """
        if name == self.config.default:
            raise ConfigError(f"model {name!r} is what robots get that name none")
        self._models.pop(name, None)
        self._unopened.pop(name, None)

    async def drain(self, reason: str) -> None:
        """Take no new requests and wait for those under way."""
        self._drain_reason = reason
        await self._idle.wait()
        self._dispatcher.drain(reason)

    def close(self) -> None:
        """Cancel what is under way and let go of everything."""
        for connection in [*self._connections.values()]:
            connection.close()
        self._expiries.close()
        self._dispatcher.close()
        self._rows.close()
        self._arena.close()

    # Sessions

    def open_session(self, number: int, robot: str | None) -> Session[GatewayRequest]:
        """The session of a robot on a connection; see ``GatewayConnection.session``."""
        found = self._sessions.find(number, robot)
        if found is not None:
            return found
        opened = self._sessions.open(number, robot)
        if opened.displaced is not None:
            self._displace(opened.displaced, robot)
        return opened.session

    def close_connection(self, number: int) -> None:
        """Cancel everything of a connection; see ``GatewayConnection.close``."""
        self._connections.pop(number, None)
        for closed in self._sessions.close(number):
            self._robots.forget(closed.session.number)
            for pending in closed.unanswered:
                self._abandon(pending, None)

    def _displace(self, closed: Closed[GatewayRequest], robot: str | None) -> None:
        self._robots.forget(closed.session.number)
        sentence = f"robot {robot!r} has connected again elsewhere; this connection gave way"
        for pending in closed.unanswered:
            self._abandon(pending, RefusedError(sentence, code="cancelled"))
        connection = self._connections.get(closed.connection)
        if connection is not None:
            connection.on_displaced(robot)

    def _abandon(self, pending: Pending[GatewayRequest], error: RefusedError | None) -> None:
        """End a request whose session has closed."""
        request = pending.item
        request.is_settled = True
        self._answer(request, error)
        self._dispatcher.cancel(request)

    # Requests

    def accept(
        self, session: Session[GatewayRequest], observation: Observation, wanted: Wanted
    ) -> asyncio.Future[Answer]:
        """Take a request in; see :meth:`takt.gateway.connection.GatewaySession.infer`."""
        model = self.model(wanted.model)
        if not session.is_closed:  # one that has closed was forgotten for good
            self._robots.note(session.number, model.name, wanted.arrival)
        self._check_serving(model)
        timing = resolve_timing(
            wanted.arrival,
            declared=wanted.declared,
            slo=model.slo,
            allowance=session.allowance.value,
            inferred_due=wanted.inferred_due,
        )
        is_read_now = model.is_read_at_once(observation)
        request = GatewayRequest(
            session=session,
            model=model,
            observation=observation if is_read_now or not wanted.is_lent else observation.owned(),
            wanted=wanted,
            timing=timing,
            answer=asyncio.get_running_loop().create_future(),
            offered=self.clock(),
        )
        try:
            offered = session.offer(request, timing=timing)
        except RefusedError as error:
            self.counters[f"refused.{error.code}"] += 1
            raise
        request.sequence = offered.sequence
        self._opened(request)
        if offered.superseded is not None:
            self._supersede(offered.superseded.item)
        self._start_one_of(session)
        if is_read_now and wanted.is_lent and request.observation is not None:
            request.observation = request.observation.owned()  # it has to wait
        return request.answer

    def _check_serving(self, model: GatewayModel) -> None:
        error = None
        if self._drain_reason is not None:
            error = RefusedError(
                f"the server takes no new requests: {self._drain_reason}", code="draining"
            )
        elif not self._dispatcher.serves(model.name):
            error = not_served(model.name, self._dispatcher.readiness(model.name))
        if error is not None:
            self.counters[f"refused.{error.code}"] += 1
            raise error

    def _opened(self, request: GatewayRequest) -> None:
        self.counters["accepted"] += 1
        self._num_open += 1
        self._idle.clear()
        request.answer.add_done_callback(lambda answer: self._answered(request, answer))
        self._expiries.add(request)

    def _answered(self, request: GatewayRequest, answer: asyncio.Future[Answer]) -> None:
        self._num_open -= 1
        if not self._num_open:
            self._idle.set()
        if answer.cancelled():
            self.counters["cancelled"] += 1
            if not request.is_settled:
                self._forsake(request)
        else:
            answer.exception()  # asyncio complains of a refusal that no door looked at

    def _forsake(self, request: GatewayRequest) -> None:
        """The door cancelled the answer itself."""
        if request.ref is not None:  # one that waits is dropped when its turn comes
            request.is_settled = True
            request.session.settle(request.sequence)
            self._dispatcher.cancel(request)

    def _expire(self, request: GatewayRequest) -> None:
        """Nobody has answered in time."""
        waited = to_ms(self.clock() - request.timing.arrival)
        at = f"; worker {request.peer.name} has not come to it" if request.peer is not None else ""
        self._forsake(request)
        self._answer(request, RefusedError(f"expired after {waited:.1f} ms{at}", code="expired"))

    def _supersede(self, request: GatewayRequest) -> None:
        request.is_settled = True
        error = RefusedError(
            "a newer observation of this robot came before this one was looked at",
            code="superseded",
        )
        self._answer(request, error)

    def _start_one_of(self, session: Session[GatewayRequest]) -> None:
        """Start what was just offered, unless others wait or it must."""
        if self._has_waiting or not self._dispatcher.num_free:
            self._has_waiting = True
            self._pump()
            return
        taken = session.take()
        if taken is None:
            self._has_waiting = True
        else:
            self._start(taken.item)

    def _pump(self) -> None:
        """Start what waits, as far as slots are free."""
        if self._is_pumping or not self._has_waiting:
            return
        self._is_pumping = True
        try:
            while self._dispatcher.num_free:
                taken = self._sessions.take()
                if taken is None:
                    self._has_waiting = any(session.num_waiting for session in self._sessions)
                    return
                self._start(taken[1].item)
        finally:
            self._is_pumping = False

    def _start(self, request: GatewayRequest) -> None:
        if request.answer.done():  # the door gave it up while it waited
            request.is_settled = True
            request.session.settle(request.sequence)
            return
        request.taken = self.clock()
        self._dispatcher.claim(request)
        self._rows.write(request)

    def _row_written(self, request: GatewayRequest, written: RowHeader | RefusedError) -> None:
        request.written = self.clock()
        request.observation = None
        if isinstance(written, RefusedError):
            self._dispatcher.withdraw(request)
            self.finish(request, written)
        else:
            request.header = written
            self._dispatcher.submit(request)

    def finish(self, request: GatewayRequest, outcome: Answer | RefusedError) -> None:
        """A request with a slot has ended: answer it, unless nobody waits, and start what waits."""
        if not request.is_settled:
            request.is_settled = True
            request.session.settle(request.sequence)
            self._answer(request, outcome)
        self._pump()

    def _answer(self, request: GatewayRequest, outcome: Answer | RefusedError | None) -> None:
        """Tell the door; None: it has gone, or it gave the request up itself."""
        if request.answer.done():
            return
        if outcome is None:
            request.answer.cancel()
        elif isinstance(outcome, Answer):
            self.counters["served"] += 1
            request.answer.set_result(outcome)
        else:
            self.counters[f"refused.{outcome.code}"] += 1
            request.answer.set_exception(outcome)
