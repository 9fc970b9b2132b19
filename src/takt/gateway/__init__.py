"""The gateway: sessions, preprocessing, and which worker serves which request.

It speaks no robot protocol (:mod:`takt.doors` does) and runs no network (:mod:`takt.runtime` does,
in another process). Inference never runs on its loop, so a door answers pings, handshakes and
health checks while launches run.

Start reading at :class:`takt.gateway.gateway.Gateway`; what a door may call is
:class:`takt.gateway.connection.GatewaySession`.
"""
