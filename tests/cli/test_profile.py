"""``takt profile`` and who reads its file."""

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from takt.cli.main import main
from takt.cli.serve import Serve
from takt.core.profile import Work
from takt.errors import ConfigError
from takt.hardware.measured import MeasuredProfile
from takt.runtime.profiling.cache import Cache
from takt.runtime.profiling.median import Median
from takt.server.composition import DevicePlan, ServerPlan
from takt.server.formation_choice import Load

PACED = ["--paced", "h100", "--paced-seed", "2", "--without-waiting", "--model", "groot-n1.7"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.slow
def test_a_stranger_is_measured_written_drawn_and_planned_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, plot = tmp_path / "groot.json", tmp_path / "groot.svg"

    assert main(["profile", *PACED, "--out", str(out), "--plot", str(plot)]) == 0

    said = capsys.readouterr()
    assert "paced h100, stranger 2" in said.out
    assert "interpolated" in said.out
    assert "on a h100 this takes" in said.err
    assert "0 entries were in" in said.err
    assert plot.read_bytes().startswith(b"<?xml")
    assert MeasuredProfile.read(out).model("groot-n1.7").prefix_sizes == (1, 2, 4)

    short = ["--seeds", "2", "--seconds", "2", "--formation", "monolithic", "--json"]
    assert main(["plan", "--profile", str(out), "--model", "groot-n1.7", *short]) == 0
    assert json.loads(capsys.readouterr().out)["robots_at_target"] > 0


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def interrupted(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, signals_are_heeded: None
) -> tuple[int, list[tuple[Work, ...]]]:
    """A signal that comes whenever an entry is known, and the entries."""
    kept: list[tuple[Work, ...]] = []
    keep = Cache.keep

    def keep_and_signal(cache: Cache, medians: Sequence[Median], *works: Work) -> None:
        keep(cache, medians, *works)
        kept.append(works)
        signal.raise_signal(request.param)

    monkeypatch.setattr(Cache, "keep", keep_and_signal)
    return request.param, kept


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "how"),
    [([], "the same command"), (["--refresh"], "the same command without --refresh")],
)
def test_a_signal_ends_a_profile_that_goes_on_where_it_was(
    options: list[str],
    how: str,
    interrupted: tuple[int, list[tuple[Work, ...]]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    number, kept = interrupted
    command = ["profile", "--model", "echo", "--most-runs", "5"]

    assert main([*command, *options]) == 128 + number

    (cache,) = (tmp_path / "cache" / "takt" / "profiles").iterdir()
    words = f"broken off; what was measured is kept in {cache}, and {how} goes on from there\n"
    assert capsys.readouterr().err == words
    assert main(command) == 128 + number
    assert len(set(kept)) == 2
    assert len(cache.read_text().splitlines()) == 2


@pytest.mark.slow
def test_the_second_time_everything_is_in_the_cache(capsys: pytest.CaptureFixture[str]) -> None:
    main(["profile", *PACED, "--json"])
    first = capsys.readouterr()

    main(["profile", *PACED, "--json"])
    second = capsys.readouterr()
    assert second.out == first.out
    assert "measured in 0.0 s of the device's time" in second.err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "nothing to measure: give at least one --model"),
        (["--model", "echo", "--without-waiting"], "--without-waiting is for --paced"),
        (["--model", "echo", "--most-seconds", "0"], "--most-seconds must lie in 0 to 3600"),
        (["--model", "echo", "--relative-error", "0.7"], "--relative-error must lie above 0"),
        (["--model", "echo", "--layout", "echo"], "--layout 'echo': expected NAME=N"),
        (["--model", "echo", "--layout", "echo=7"], "--layout echo: expected 0..0, got 7"),
        (["--model", "echo", "--plot", "a.pdf"], "a plot ends in .png or .svg"),
        (["--model", "echo", "--out", "none/a.json"], "--out none/a.json: no folder none"),
        (["--model", "pi0", "--paced", "rtx-9000"], "no device 'rtx-9000'"),
    ],
)
def test_impossible_options_are_refused_before_anything_is_measured(
    options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", *options]) == 1
    assert complaint in capsys.readouterr().err


def test_a_server_with_a_profile_believes_it(tmp_path: Path) -> None:
    plan = Serve(model=("pi0",), paced="h100", profile=tmp_path / "pi0.json").plan()

    assert plan.devices[0].profile_path == str(tmp_path / "pi0.json")


def test_declared_robots_without_a_choice_are_refused() -> None:
    with pytest.raises(ConfigError, match="--robots is for --formation auto"):
        Serve(model=("pi0",), paced="h100", robots=("pi0=4",)).plan()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--model", "echo", "--formation", "auto", "--robots", "echo=4"], "it needs times"),
        (["--paced", "h100", "--model", "pi0", "--formation", "auto"], "no robots of this device"),
        (
            ["--paced", "h100", "--model", "pi0", "--formation", "auto", "--robots", "pi0"],
            "--robots wants NAME=N",
        ),
        (["--model", "echo", "--profile", "none.json"], "none.json: cannot be read"),
        (["--model", "echo", "--reevaluate-seconds", "0.5"], "0 or lie in 1 to 86400, got 0.5"),
        (["--model", "echo", "--reevaluate-seconds", "-1"], "0 or lie in 1 to 86400, got -1"),
    ],
)
def test_a_choice_without_grounds_is_refused(
    options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *options, "--openpi", "0"]) == 1
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(("options", "beforehand"), [([], True), (["--json"], False)])
def test_a_person_is_told_beforehand_that_a_choice_takes_a_while(
    options: list[str],
    beforehand: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def choose(plan: ServerPlan, load_of: Callable[[DevicePlan], Load], *_: object) -> ServerPlan:
        load_of(plan.devices[0])
        raise ConfigError("the load is known")

    monkeypatch.setattr("takt.cli.serve.choose_formations", choose)
    paced = ["--paced", "h100", "--model", "pi0", "--formation", "auto", "--robots", "pi0=4"]

    assert main(["serve", *paced, *options]) == 1
    said = capsys.readouterr().err
    assert ("simulating formations for device 0, a minute at most" in said) is beforehand


def test_a_plan_takes_a_device_or_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--profile", "a.json", "--hardware", "h100", "--model", "pi0"]) == 1
    assert "--hardware or --profile" in capsys.readouterr().err
