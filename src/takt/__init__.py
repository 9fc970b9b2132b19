"""Takt serves vision-language-action policies to fleets of robots, every action chunk on time."""

__version__ = "0.1.0"
