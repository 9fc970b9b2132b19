"""The commands of ``takt``: a dataclass each, whose docstrings are the help."""
