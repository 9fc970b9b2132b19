"""The picture of a profile is written, equal for equal profiles."""

from pathlib import Path

import pytest

from takt.cli.profile_plot import plot_profile
from takt.errors import ConfigError
from takt.runtime.profiling.machines import PacedMachine
from takt.runtime.profiling.median import Enough
from takt.runtime.profiling.profiler import Profiled, Profiler
from takt.schema.serving import ServedModel


@pytest.fixture(scope="module")
def profiled() -> Profiled:
    options = {"prefix_sizes": (1,), "denoise_sizes": (1, 4)}
    machine = PacedMachine("h100")
    loaded = machine.load([ServedModel(name="pi0", policy="paced:pi0", options=options)])
    result = Profiler(machine, loaded, enough=Enough()).run(machine.identity())
    machine.close()
    return result


def test_equal_profiles_give_equal_pictures_that_name_device_and_engine(
    profiled: Profiled, tmp_path: Path
) -> None:
    one, other = tmp_path / "one.svg", tmp_path / "other.svg"

    plot_profile(profiled, one)
    plot_profile(profiled, other)

    assert one.read_bytes() == other.read_bytes()
    assert "paced h100, paced" in one.read_text(encoding="utf-8")


def test_a_picture_that_cannot_be_written_is_refused(profiled: Profiled, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot"):
        plot_profile(profiled, tmp_path / "none" / "a.png")
