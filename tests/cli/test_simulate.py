"""``takt simulate`` from the file to the screen, the JSON, the plot and the trace."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from takt import __version__
from takt.cli.main import main
from takt.cli.simulate import Simulate
from takt.core.trace import replay
from takt.errors import ConfigError, UsageError

FLEET = """
profiles:
  gpu:
    architectures:
      pi0: {prefix_ms: {1: 10, 2: 16}, denoise_ms: {1: 20, 2: 24}}
    slowdown: {prefix: 2.0, denoise: 2.0}
models:
  pick: {architecture: pi0, slo_ms: 120, prefix_sizes: [1, 2], denoise_sizes: [1, 2]}
  place: {architecture: pi0, slo_ms: 120}
devices:
  left: {profile: gpu, models: [pick]}
  right: {profile: gpu, models: [place], formation: monolithic}
robots:
  - {model: pick, count: 4, rate_hz: 2}
  - {name: second shift, model: pick, count: 2}
  - {model: place, count: 3, rate_hz: 3, jitter_ms: 20}
network: {kind: constant, up_ms: 2, down_ms: 3}
simulation: {seconds: 4, warm_up_seconds: 1, seed: 7}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET, encoding="utf-8")
    return path


def figures(capsys: pytest.CaptureFixture[str], fleet: Path, *options: str) -> dict[str, Any]:
    assert main(["simulate", str(fleet), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_report_is_readable_in_80_columns(
    capsys: pytest.CaptureFixture[str], fleet: Path
) -> None:
    assert main(["simulate", str(fleet)]) == 0

    out, err = capsys.readouterr()
    assert err == ""
    assert "…" not in out
    assert all(len(line) <= 80 for line in out.splitlines())
    for word in ("simulated", "attainment", "second shift", "place", "left", "monolithic"):
        assert word in out


def test_json_carries_the_report_and_the_version(
    capsys: pytest.CaptureFixture[str], fleet: Path
) -> None:
    found = figures(capsys, fleet)

    assert found["takt_version"] == __version__
    assert (found["seconds"], found["seed"], found["robots"]) == (4.0, 7, 9)
    assert set(found["groups"]) == {"pick", "second shift", "place"}
    assert set(found["devices"]) == {"left", "right"}
    assert "curve" not in found


def test_equal_seeds_give_equal_reports_and_others_differ(
    capsys: pytest.CaptureFixture[str], fleet: Path
) -> None:
    assert figures(capsys, fleet) == figures(capsys, fleet, "--seed", "7")
    assert (
        figures(capsys, fleet)["latency_ms"] != figures(capsys, fleet, "--seed", "8")["latency_ms"]
    )


def test_seconds_replace_those_of_the_file(capsys: pytest.CaptureFixture[str], fleet: Path) -> None:
    found = figures(capsys, fleet, "--seconds", "2.5")

    assert found["seconds"] == 2.5
    assert found["groups"]["pick"]["issued"] == 4 * 5


def test_a_trace_replays_byte_for_byte(
    capsys: pytest.CaptureFixture[str], fleet: Path, tmp_path: Path
) -> None:
    assert main(["simulate", str(fleet), "--trace", str(tmp_path / "run.jsonl")]) == 0

    assert "run-left.jsonl" in capsys.readouterr().err
    for device in ("left", "right"):
        recorded = (tmp_path / f"run-{device}.jsonl").read_bytes()
        lines = recorded.decode().splitlines()
        assert len(lines) > 100
        assert "".join(line + "\n" for line in replay(lines)).encode() == recorded


@pytest.mark.slow
@pytest.mark.parametrize(("name", "magic"), [("f.png", b"\x89PNG"), ("f.svg", b"<?xml")])
def test_a_plot_is_written_with_its_curve_in_the_json(
    capsys: pytest.CaptureFixture[str], fleet: Path, tmp_path: Path, name: str, magic: bytes
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / name

    found = figures(capsys, fleet, "--plot", str(path), "--seconds", "1", "--seeds", "2")

    assert path.read_bytes().startswith(magic)
    curve = found["curve"]
    assert curve["target"] == 0.98
    assert curve["knee_robots"] in [point["robots"] for point in curve["points"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seconds": 0.0}, "--seconds must lie in 0.001 to 1e+06, got 0"),
        ({"seconds": float("nan")}, "--seconds must lie in"),
        ({"seconds": float("inf")}, "--seconds must lie in"),
        ({"seeds": 1}, "--seeds must lie in 2 to 1000, got 1"),
        ({"target": 98.0}, "--target must lie between 0 and 1, got 98"),
        ({"plot": Path("curve.pdf")}, "--plot curve.pdf: a plot ends in .png or .svg"),
        ({"plot": Path("nowhere/curve.png")}, "--plot nowhere/curve.png: no folder nowhere"),
        ({"trace": Path("nowhere/run.jsonl")}, "--trace nowhere/run.jsonl: no folder nowhere"),
    ],
)
def test_what_would_fail_in_the_end_is_refused_at_once(
    options: dict[str, Any], message: str
) -> None:
    # The fleet file is not even read.
    with pytest.raises(UsageError, match=re.escape(message)):
        Simulate(fleet=Path("nowhere.yaml"), **options).run()


def test_a_plot_without_matplotlib_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, fleet: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr("takt.cli.simulate.find_spec", lambda _: None)

    with pytest.raises(UsageError, match=r"pip install 'takt-serve\[plot\]'"):
        Simulate(fleet=fleet, plot=tmp_path / "f.png").run()


def test_a_trace_that_cannot_be_written_is_refused(fleet: Path, tmp_path: Path) -> None:
    (tmp_path / "run-left.jsonl").mkdir()

    with pytest.raises(UsageError, match=r"--trace .*run-left\.jsonl: is a folder"):
        Simulate(fleet=fleet, trace=tmp_path / "run.jsonl").run()


def test_a_mistake_in_the_file_is_one_line(capsys: pytest.CaptureFixture[str], fleet: Path) -> None:
    fleet.write_text(FLEET.replace("count: 4", "cout: 4"), encoding="utf-8")

    assert main(["simulate", str(fleet)]) == 1

    assert capsys.readouterr() == ("", f"takt: {fleet}: robots[0].cout: unknown key\n")


def test_a_fleet_without_robots_is_an_answer_and_not_an_error(
    capsys: pytest.CaptureFixture[str], fleet: Path
) -> None:
    fleet.write_text(FLEET.replace("count: 4", "count: 0"), encoding="utf-8")
    text = FLEET[: FLEET.index("robots:")] + FLEET[FLEET.index("network:") :]
    fleet.write_text(text, encoding="utf-8")

    assert main(["simulate", str(fleet)]) == 0

    assert "0 robots" in capsys.readouterr().out


def test_a_curve_of_no_robots_is_refused(fleet: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    fleet.write_text(FLEET[: FLEET.index("robots:")], encoding="utf-8")

    with pytest.raises(ConfigError, match="without robots"):
        Simulate(fleet=fleet, plot=tmp_path / "f.png").run()
