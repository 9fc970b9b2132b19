"""The plot of attainment over population: says what it shows, and equal inputs give equal bytes."""

import re
import sys
from pathlib import Path

import pytest
from tests.full_disk import FULL, full_disk

from takt.errors import ConfigError, UsageError
from takt.sim.knee import Draw, Measured
from takt.sim.plot import CurvePoint, plot_attainment

CURVE = [
    CurvePoint(population=8, mean=1.0, low=0.999, high=1.001, by_model={"act": 1.0}),
    CurvePoint(population=16, mean=0.99, low=0.985, high=0.995, by_model={"act": 0.98}),
    CurvePoint(population=24, mean=0.7, low=0.6, high=0.8, by_model={"pi0": 0.6}),
]


def svg(path: Path) -> str:
    # matplotlib writes each text beside its outlines, as a comment.
    return "\n".join(re.findall(r"<!-- (.*?) -->", path.read_text()))


def test_the_picture_names_what_it_shows(tmp_path: Path) -> None:
    path = tmp_path / "curve.svg"

    plot_attainment(CURVE, path, knee=16, title="One GPU", subtitle="lockstep, 5 seeds")

    texts = svg(path).splitlines()
    assert {
        "One GPU",
        "simulated: lockstep, 5 seeds",
        "population (robots)",
        "SLO attainment (share of issued requests)",
        "knee: 16 robots",
        "target 0.98",
        "95 % interval over seeds",
        "mean over seeds",
        "act",
        "pi0",
    } <= set(texts)


def test_a_point_shows_each_model_where_there_are_several() -> None:
    alone = Measured(population=4, draws=(Draw(0.9, 0.8, {"pi0": 0.9}), Draw(1.0, 1.0, {"pi0": 1})))
    mixed = Measured(
        population=4,
        draws=(Draw(0.9, 0.8, {"act": 1.0, "pi0": 0.9}), Draw(1.0, 1.0, {"pi0": 1.0})),
    )

    assert CurvePoint.of(alone).mean == pytest.approx(0.95)
    assert CurvePoint.of(alone).by_model == {}
    assert CurvePoint.of(mixed).by_model == pytest.approx({"act": 1.0, "pi0": 0.95})


def test_every_picture_says_that_it_is_simulated(tmp_path: Path) -> None:
    plot_attainment(CURVE, tmp_path / "curve.svg")

    assert "simulated" in svg(tmp_path / "curve.svg").splitlines()


def test_without_a_knee_none_is_drawn(tmp_path: Path) -> None:
    plot_attainment(CURVE, tmp_path / "curve.svg", knee=None)

    assert "knee" not in svg(tmp_path / "curve.svg")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_equal_inputs_give_equal_bytes(tmp_path: Path, suffix: str) -> None:
    one, two = tmp_path / f"one{suffix}", tmp_path / f"two{suffix}"

    plot_attainment(CURVE, one, knee=16)
    plot_attainment(CURVE, two, knee=16)

    assert one.read_bytes() == two.read_bytes()


def test_the_users_style_does_not_reach_the_picture(tmp_path: Path) -> None:
    import matplotlib as mpl

    plot_attainment(CURVE, tmp_path / "plain.svg")
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.fonttype": "none"}):
        plot_attainment(CURVE, tmp_path / "styled.svg")

    assert (tmp_path / "styled.svg").read_bytes() == (tmp_path / "plain.svg").read_bytes()


def test_no_global_figure_is_opened(tmp_path: Path) -> None:
    plot_attainment(CURVE[:1], tmp_path / "curve.svg")

    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_the_suffix_decides_the_format(tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"curve{suffix}"

    plot_attainment(CURVE, path)

    assert path.read_bytes().startswith(magic)


@pytest.mark.parametrize("name", ["curve.pdf", "curve", "curve.PNG"])
def test_another_suffix_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"ends in \.png or \.svg"):
        plot_attainment(CURVE, tmp_path / name)

    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(ConfigError, match=r"takt-serve\[plot\]"):
        plot_attainment(CURVE, tmp_path / "curve.png")


def test_a_full_disk_leaves_the_plot_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "curve.png"
    plot_attainment(CURVE, path)
    good = path.read_bytes()

    with full_disk(), pytest.raises(ConfigError, match=f"cannot write the plot: {FULL}"):
        plot_attainment(CURVE, path)

    assert path.read_bytes() == good
    assert [*tmp_path.iterdir()] == [path]


def test_a_folder_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write the plot: No such file"):
        plot_attainment(CURVE, tmp_path / "nowhere" / "curve.svg")


@pytest.mark.parametrize(
    ("curve", "options", "named"),
    [
        ([], {}, "at least one point"),
        (CURVE[::-1], {}, "must ascend"),
        (CURVE[:1] * 2, {}, "must ascend"),
        (CURVE, {"target": 98}, "target must lie between 0 and 1, got 98"),
        (CURVE, {"knee": 17}, "knee must be one of the populations"),
    ],
)
def test_a_curve_that_makes_no_sense_is_refused(
    tmp_path: Path, curve: list[CurvePoint], options: dict[str, object], named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        plot_attainment(curve, tmp_path / "curve.svg", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"population": 0}, "population must be at least 1"),
        ({"mean": 1.2, "high": 1.3}, "attainment of mean"),
        ({"low": 0.95}, "must ascend"),
        ({"by_model": {"act": -0.1}}, "attainment of act"),
    ],
)
def test_a_point_that_makes_no_sense_is_refused(changes: dict[str, object], named: str) -> None:
    point: dict[str, object] = {"population": 1, "mean": 0.9, "low": 0.8, "high": 1.0}

    with pytest.raises(UsageError, match=named):
        CurvePoint(**(point | changes))  # type: ignore[arg-type]
