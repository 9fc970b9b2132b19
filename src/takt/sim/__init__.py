"""Drives the scheduler in virtual time: robots, networks and devices without hardware.

Time is a number that jumps from event to event, every random draw comes from a seeded generator
that is handed in, and decisions are taken by the same ``takt.core`` that serves real robots.
Equal seeds give equal runs.
"""
