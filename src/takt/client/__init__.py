"""Asks a Takt server for action chunks, from a robot's computer."""
