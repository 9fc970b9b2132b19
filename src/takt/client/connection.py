"""Asks a server for action chunks, one at a time, and waits for each.

The protocol is openpi's: a stock server is asked as openpi's own client asks it. A server that
greets as Takt is also told how long the robot can wait, and says which stage took how long.

A control loop that must not wait uses :class:`~takt.client.background.BackgroundClient`, which
calls this from a thread of its own. Start reading at :meth:`Connection.infer`.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from takt.client.address import server_address
from takt.client.answer import Answer, read_answer
from takt.client.closing import Closing
from takt.client.errors import ConnectionLostError
from takt.client.image_sending import NegotiatedImages
from takt.client.image_settings import ImageSettings, SendImages
from takt.client.leftover import Leftover
from takt.client.transport import Transport, open_transport
from takt.errors import ConfigError, InvariantError, RefusedError, UsageError
from takt.schema.plain import spec_from_plain
from takt.schema.spec import PolicySpec
from takt.units import SECOND, Nanos, ms
from takt.wire.limits import Limits
from takt.wire.openpi import decode_metadata, encode_observation
from takt.wire.openpi_errors import error_in_text
from takt.wire.openpi_options import OPTIONS_KEY, ErrorForm, RequestOptions

__all__ = ["Connection", "connect"]

log = logging.getLogger(__name__)

_MAX_SLO_MS = 1e9


def connect(
    address: str,
    *,
    token: str | None = None,
    model: str | None = None,
    robot: str | None = None,
    connect_timeout: Nanos = 10 * SECOND,
    answer_timeout: Nanos = 10 * SECOND,
    limits: Limits | None = None,
    images: ImageSettings | SendImages = "as_given",
    clock: Callable[[], Nanos] = time.monotonic_ns,
) -> "Connection":
    """Connect to a server and read what it says of itself.

    Args:
        address: ``host:port`` (openpi's port 8000 when it is left out), or a ``ws://`` or
            ``wss://`` URL.
        token: Secret that the server asks for.
        model: Name of the model; None: the server's default.
        robot: Name of this robot, for a server that tells robots apart.
        connect_timeout: Longest wait for the server's greeting.
        answer_timeout: Longest wait for an answer.
        limits: What a message of the server may ask for.
        images: How camera images are sent to a server that takes them so; others get them as they
            are handed over. All but ``as_given`` needs the extra ``images``.
        clock: Monotonic, in nanoseconds.

    Returns:
        An open connection. Close it, or use it as a context manager.

    Raises:
        UsageError: The address or the token is none.
        ConfigError: ``images`` cannot be had on this computer.
        ConnectionLostError: There is no server that speaks this protocol.
        RefusedError: The server refuses; code ``unauthorized`` or ``unknown_model``, for example.
    """
    limits = limits or Limits()
    settings = images if isinstance(images, ImageSettings) else ImageSettings(send=images)
    give_up = clock() + connect_timeout
    transport = open_transport(
        server_address(address, model=model, robot=robot),
        token=token,
        timeout=connect_timeout,
        max_message_bytes=limits.max_message_bytes,
    )
    try:
        metadata = _greeting(transport, max(0, give_up - clock()), limits)
    except BaseException:
        transport.close()
        raise
    return Connection(
        transport,
        metadata,
        answer_timeout=answer_timeout,
        limits=limits,
        images=settings,
        clock=clock,
    )


class Connection(Closing):
    """One robot's open connection.

    It is for one thread at a time; only :meth:`close` may be called from another one, and ends an
    :meth:`infer` that waits. After a :class:`ConnectionLostError` it stays closed: connect again.

    Args:
        transport: Carries the messages; :func:`connect` opens one.
        metadata: The server's greeting.
        answer_timeout: Longest wait for an answer.
        limits: What an answer may ask for.
        images: How camera images are sent, where the server takes them so.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(
        self,
        transport: Transport,
        metadata: Mapping[str, object],
        *,
        answer_timeout: Nanos = 10 * SECOND,
        limits: Limits | None = None,
        images: ImageSettings | None = None,
        clock: Callable[[], Nanos] = time.monotonic_ns,
    ) -> None:
        self.metadata = metadata
        """What the server said of itself when it greeted."""
        self.images = self._negotiated(images or ImageSettings())
        """What is done to camera images before they are sent."""
        self._transport = transport
        self._answer_timeout = answer_timeout
        self._limits = limits or Limits()
        self._clock = clock
        self._sequence = 0
        self._closed = False

    @property
    def is_takt(self) -> bool:
        """Whether the server is Takt and takes more than an observation."""
        return isinstance(self.metadata.get(OPTIONS_KEY), Mapping)

    @property
    def model(self) -> str | None:
        """Name of the model that answers; None when the server does not say."""
        name = self._card().get("model")
        return name if isinstance(name, str) else None

    @property
    def spec(self) -> PolicySpec | None:
        """What the model takes and gives; None when the server does not say.

        Raises:
            ConfigError: The server describes it in words that this version does not know.
        """
        plain = self._card().get("spec")
        return None if plain is None else spec_from_plain(plain)

    @property
    def model_digest(self) -> str | None:
        """Digest of the model's weights; None when the server does not say, or it has none."""
        spec = self._card().get("spec")
        if not isinstance(spec, Mapping):
            return None
        found = cast("Mapping[str, object]", spec).get("digest")
        return found if isinstance(found, str) and found else None

    @property
    def takes_leftovers(self) -> bool:
        """Whether the model continues what a robot is still executing; false when the server does
        not say.
        """
        return self._card().get("takes_leftovers") is True

    @property
    def slo(self) -> Nanos | None:
        """What the server promises for this model, from sending to the answer being here; None
        when it does not say.
        """
        promised = self._card().get("slo_ms")
        if isinstance(promised, (int, float)) and 0 < promised < _MAX_SLO_MS:
            return ms(promised)
        return None

    def infer(
        self,
        observation: Mapping[str, object],
        *,
        due_in: Nanos | None = None,
        expires_in: Nanos | None = None,
        timing: bool = True,
        leftover: Leftover | None = None,
    ) -> Answer:
        """Ask for a chunk and wait for it.

        Args:
            observation: Arrays, numbers and strings by the keys the policy takes, such as
                ``observation/image``, ``observation/state`` and ``prompt``.
            due_in: Time until the robot runs out of actions, less what the network takes both
                ways; negative when it already has. Servers other than Takt are not told.
            expires_in: Time until an answer is worthless, positive. Servers other than Takt are
                not told.
            timing: Ask for the time of each stage.
            leftover: What the robot will still be executing when the answer comes, for a chunk that
                continues it; None: the chunk starts free.

        Returns:
            The answer to this observation.

        Raises:
            RefusedError: The server answered with an error; ``code`` says which. The connection
                stays usable unless the server ends it.
            WireError: The server's answer holds no chunk of finite numbers.
            ConnectionLostError: The server went away or fell silent, or the connection was closed
                before; it is closed now.
            InvariantError: The server sent an answer too many, or one to another observation; the
                connection is closed now.
            UsageError: The observation cannot be sent, or a leftover is given to a server other
                than Takt, which would take no notice of it.
        """
        if self._closed:
            raise ConnectionLostError("this connection is closed; connect again", code="closed")
        if leftover is not None and not self.is_takt:
            raise UsageError("leftover: this server is not Takt and takes none; leave it out")
        self._refuse_unread()
        sequence = self._sequence
        options = RequestOptions(
            sequence=sequence,
            due_in=due_in,
            expires_in=expires_in,
            wants_timing=timing,
            error_form=ErrorForm.MAP,
            leftover=None if leftover is None else leftover.in_words(),
        )
        began = self._clock()
        prepared = self.images.prepare(observation)
        if prepared.values is not observation:
            options = _later(options, self._clock() - began)
        message = encode_observation(prepared.values, options if self.is_takt else None)
        self._sequence += 1
        reply, round_trip = self._exchange(message)
        answer = read_answer(
            reply, round_trip=round_trip, limits=self._limits, digest=self.model_digest
        )
        sent = len(message)
        answer = replace(answer, sent_bytes=sent, raw_bytes=sent + prepared.spared_bytes)
        if answer.sequence not in (None, sequence):
            # It is not known which observation any further reply would belong to.
            self.close()
            raise InvariantError(
                f"the answer is to observation {answer.sequence}, not to {sequence}"
            )
        return answer

    def close(self) -> None:
        """End the connection; closing twice does nothing."""
        self._closed = True
        self._transport.close()

    def _refuse_unread(self) -> None:
        """Ask nothing of a server whose answers would be taken for those of later observations."""
        # An answer of Takt's says which observation it is to; a stock server's does not.
        if not self.is_takt and self._transport.has_unread():
            self.close()
            raise InvariantError("the server sent a message nobody asked for")

    def _exchange(self, message: bytes) -> tuple[str | bytes, Nanos]:
        """Send a message and wait for the next; also how long that took."""
        sent = self._clock()
        try:
            self._transport.send(message)
            reply = self._transport.receive(self._answer_timeout)
        except ConnectionLostError:
            # A late answer must never be taken for the next observation's.
            self.close()
            raise
        return reply, self._clock() - sent

    def _negotiated(self, settings: ImageSettings) -> NegotiatedImages:
        if settings.send == "as_given":
            return NegotiatedImages(settings, None, None)
        offer = self._card().get("images")
        try:
            spec = self.spec
        except ConfigError:  # the server is of another version; images can do without
            spec = None
        negotiated = NegotiatedImages(
            settings,
            cast("Mapping[str, object]", offer) if isinstance(offer, Mapping) else None,
            None if spec is None else spec.observation,
        )
        for refusal in negotiated.refusals:
            log.warning("images: %s", refusal)
        return negotiated

    def _card(self) -> Mapping[str, object]:
        found = self.metadata.get(OPTIONS_KEY)
        return cast("Mapping[str, object]", found) if isinstance(found, Mapping) else {}


def _later(options: RequestOptions, took: Nanos) -> RequestOptions:
    """The same after preparing images: durations on the wire begin when the message is sent."""
    due_in, expires_in = options.due_in, options.expires_in
    return replace(
        options,
        due_in=None if due_in is None else due_in - took,
        expires_in=None if expires_in is None else max(1, expires_in - took),
    )


def _greeting(transport: Transport, timeout: Nanos, limits: Limits) -> dict[str, object]:
    try:
        message = transport.receive(timeout)
    except ConnectionLostError as error:
        refusal = error_in_text(error.reason)
        if refusal.code == RefusedError.code:  # the reason names no code
            raise
        raise refusal from None
    if isinstance(message, str):
        raise error_in_text(message)
    return decode_metadata(message, limits)
