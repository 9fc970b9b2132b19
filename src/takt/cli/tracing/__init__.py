"""Shows what a scheduler decided: a recorded trace as a timeline, a picture or a summary.

``reading`` reads a trace's lines, ``story`` follows lanes, queues and requests through them, and
``perfetto``, ``picture`` and ``summary`` show a story. Nothing here decides anything:
``takt replay`` runs a trace through a scheduler again.
"""
