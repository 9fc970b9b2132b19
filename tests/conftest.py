"""What every test may rely on: reproducible property tests, recordings, signals that are heeded.

Real recordings and checkpoints are too large for the repository. ``TAKT_FIXTURES`` names the
folder that holds them; a test that needs one asks for the ``fixtures`` fixture and is skipped,
saying so, where the variable is not set.
"""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The networks of the tests are tiny. Teams of threads would spend more time waiting for one another
# than computing, the more so where several test processes and their servers share two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# CI draws the same examples every time, so a red run can be repeated; a laptop keeps exploring.
settings.register_profile("laptop", deadline=None)
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "laptop")


def pytest_collection_finish() -> None:
    """Thousands of tests live until the end: no garbage collection looks at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def signals_are_heeded() -> Iterator[None]:
    """The signals that end a program are not ignored, here and in children that are started.

    Tests that a shell runs in the background have SIGINT ignored, under ``nohup`` SIGHUP.
    """
    heeded = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in heeded.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder ``TAKT_FIXTURES`` names: ``wire/`` recordings and ``policies/`` checkpoints."""
    named = os.environ.get("TAKT_FIXTURES")
    if not named:
        pytest.skip("TAKT_FIXTURES is not set")
    folder = Path(named)
    if not folder.is_dir():
        pytest.fail(f"TAKT_FIXTURES names no folder: {named}")
    return folder
