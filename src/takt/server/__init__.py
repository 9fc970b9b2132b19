"""Puts the parts together: reads the fleet file, builds what it describes, runs it.

This is the only package that knows everybody below it.
"""
