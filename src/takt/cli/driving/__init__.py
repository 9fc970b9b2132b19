"""Simulated robots against a real server: real sockets, real time, recorded observations.

``robot`` holds the rules (pure), ``crew`` the threads and connections, ``episodes`` what the robots
see, ``figures`` what came out, ``live_table`` what is shown meanwhile. ``takt drive`` and
``takt demo`` use it. It is part of the commands and not of :mod:`takt.testing`, because it needs
the recordings and the client, reads the clock and starts threads.
"""
