"""Measures a running server with robots of several processes, in epochs.

``sender`` is what runs in each of the processes, ``senders`` directs them, ``verdict`` judges the
epochs, and ``figures``, ``words``, ``csv_file`` and ``picture`` say what came out. The robots
themselves are those of :mod:`takt.cli.driving`.
"""
