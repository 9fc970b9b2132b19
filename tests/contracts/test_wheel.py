"""What people install is what we tested: the wheel holds the package and works without the rest."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
    )
    (built,) = folder.glob("takt_serve-*.whl")
    return built


def test_the_wheel_holds_the_package_its_types_and_its_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.partition("/")[0].rpartition(".")[2] for name in names} == {"takt", "dist-info"}
    assert "takt/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert any(name.endswith("/entry_points.txt") for name in names)


def test_a_robot_need_not_carry_the_data_of_mini(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel).infolist()

    assert max(file.file_size for file in files) < 500_000
    assert sum(file.file_size for file in files) < 4_000_000


def test_mini_is_whole_with_its_own_wheel_and_named_without(wheel: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT / "packages" / "mini",
        check=True,
    )
    (data,) = tmp_path.glob("takt_mini-*.whl")
    code = (
        "from takt.policies.catalog import open_policy\n"
        "from takt.policies.mini.replay import load_recordings\n"
        "print(open_policy('mini').spec.name, len(load_recordings()) > 0)"
    )
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)

    without = subprocess.run(
        [sys.executable, "-c", code], cwd=site, capture_output=True, text=True, check=False
    )
    zipfile.ZipFile(data).extractall(site)
    whole = subprocess.run(
        [sys.executable, "-c", code], cwd=site, capture_output=True, text=True, check=True
    )

    assert "pip install takt-mini" in without.stderr
    assert whole.stdout == "mini True\n"


def test_the_unpacked_wheel_runs_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)

    done = subprocess.run(
        [sys.executable, "-c", "import takt, takt.client; print(takt.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert Path(done.stdout.strip()).is_relative_to(tmp_path)
