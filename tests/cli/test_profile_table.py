"""The tables of a profile say what is known, how well, and what is not."""

import io
from dataclasses import replace

import msgspec
import pytest
from rich.console import Console

from takt.cli.profile_table import show_profile
from takt.runtime.profiling.machines import PacedMachine
from takt.runtime.profiling.median import Enough
from takt.runtime.profiling.profiler import Profiled, Profiler
from takt.schema.serving import ServedModel


@pytest.fixture(scope="module")
def profiled() -> Profiled:
    options = {"prefix_sizes": (1, 2), "denoise_sizes": (1, 4)}
    machine = PacedMachine("h100")
    loaded = machine.load([ServedModel(name="pi0", policy="paced:pi0", options=options)])
    result = Profiler(machine, loaded, enough=Enough()).run(machine.identity())
    machine.close()
    return result


def shown(profiled: Profiled) -> str:
    console = Console(file=io.StringIO(), width=160)
    show_profile(profiled, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_each_captured_size_has_a_row_on_the_whole_device(profiled: Profiled) -> None:
    text = shown(profiled)

    alone = text[text.index("Alone") : text.index("Side by side")]
    assert alone.count("prefix") == 2
    assert alone.count("denoise") == 2
    assert "0.0%" in alone


def test_the_smallest_and_the_largest_batches_stand_side_by_side(profiled: Profiled) -> None:
    text = shown(profiled)

    assert text.count(" of 132") == 4
    assert "1.00 x" in text or "1.10 x" in text


def test_errors_and_interpolation_are_said(profiled: Profiled) -> None:
    text = " ".join(shown(profiled).split())

    assert "medians within 3% (interval of 95%), slowdowns within 6%" in text
    assert f"{len(profiled.beside)} pairs measured" in text
    assert "cut off" not in text


def test_what_was_cut_off_is_named_and_the_rest_counted(profiled: Profiled) -> None:
    named = tuple(f"entry {number}" for number in range(8))
    header = msgspec.structs.replace(profiled.profile.header, cut_off=named)
    cut = replace(profiled, profile=replace(profiled.profile, header=header))

    text = shown(cut)

    assert "entry 4" in text
    assert "entry 5" not in text
    assert "3 more" in text
