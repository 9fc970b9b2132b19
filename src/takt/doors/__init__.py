"""Doors: the protocols that robots connect with, on real sockets.

A door translates between one protocol and the gateway's sessions and knows nothing of workers. It
checks every limit before it takes memory, answers every request, and never closes a connection
for a fault that the protocol lets it report.

Start reading at :mod:`takt.doors.openpi_websocket`, Takt's native door; below it lies
:mod:`takt.doors.websocket_server`.
"""
