"""The protocols robots speak, as pure codecs: bytes in, values out, and back.

Nothing here opens a socket, reads a clock, runs what it reads or takes memory that a message has
not paid for. ``takt.doors`` puts these codecs on servers, ``takt.client`` on robots. Foreign
names are translated here and in ``takt.policies`` alone.

Start reading at :mod:`takt.wire.openpi`, Takt's native protocol.
"""
