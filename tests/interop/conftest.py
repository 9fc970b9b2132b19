"""Where LeRobot is."""

import os

import pytest


@pytest.fixture(scope="session")
def lerobot_python() -> str:
    named = os.environ.get("TAKT_INTEROP_PYTHON")
    if not named:
        pytest.skip("TAKT_INTEROP_PYTHON is not set; `make interop` sets it")
    return named
