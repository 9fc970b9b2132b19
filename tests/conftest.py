"""What every test may rely on: reproducible property tests and the folder of wire recordings.

Real recordings and checkpoints are too large for the repository. ``TAKT_FIXTURES`` names the
folder that holds them; a test that needs one asks for the ``fixtures`` fixture and is skipped,
saying so, where the variable is not set.
"""

import os
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
