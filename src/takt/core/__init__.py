"""Decides which batches run next on a device; the one part that every driver shares.

Nothing in here reads a clock, opens a socket, draws a random number, takes a lock or writes a log.
Every call that needs the time takes ``now``. Read in this order: :mod:`takt.core.request` (the
states), :meth:`takt.core.scheduler.Scheduler.decide`, :mod:`takt.core.batching` and one formation.
"""
