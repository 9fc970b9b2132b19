"""Closed-loop evaluation: simulated environments, where chunks come from, and the live view."""
