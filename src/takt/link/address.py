"""Where a worker is reached: on this host through shared memory, or on another one by TCP.

Gateways and workers name each other by an address and know nothing else of the way between them.
``unix:NAME``, or a name alone, is an address on this host. ``tcp:HOST:PORT`` has its place here, so
that configurations can name it; this version has no such link and refuses it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from takt.errors import ConfigError

__all__ = ["LinkAddress", "LinkKind"]

LinkKind: TypeAlias = Literal["unix", "tcp"]
"""How messages and rows travel."""


class LinkAddress(NamedTuple):
    """A link address."""

    kind: LinkKind
    place: str
    """A name in the host's abstract namespace, or ``HOST:PORT``."""

    @classmethod
    def parse(cls, text: str) -> LinkAddress:
        """The address that ``text`` writes.

        Raises:
            ConfigError: It is empty, or a TCP address without a host or a port.
        """
        kind, has_kind, place = text.partition(":")
        if not has_kind or kind not in ("unix", "tcp"):
            kind, place = "unix", text
        if not place:
            raise ConfigError(f"link address {text!r}: expected unix:NAME or tcp:HOST:PORT")
        if kind == "unix":
            return cls("unix", place)
        host, _, port = place.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise ConfigError(f"link address {text!r}: expected tcp:HOST:PORT")
        return cls("tcp", place)

    def on_this_host(self) -> str:
        """Its name on this host.

        Raises:
            ConfigError: It is on another one, which this version does not reach.
        """
        if self.kind == "tcp":
            raise ConfigError(
                f"link address 'tcp:{self.place}': this version links gateways and workers of one"
                " host only; give every host a server of its own"
            )
        return self.place
