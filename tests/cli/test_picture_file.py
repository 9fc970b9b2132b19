from pathlib import Path

import pytest
from tests.full_disk import FULL, full_disk

from takt.cli.picture_file import check_picture, dress, picture
from takt.errors import ConfigError


def test_no_picture_is_asked_for() -> None:
    check_picture("--plot", None)


@pytest.mark.parametrize("name", ["p", "p.pdf", "p.PNG"])
def test_a_picture_ends_in_a_suffix_we_can_write(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"--plot .*: a plot ends in \.png or \.svg"):
        check_picture("--plot", tmp_path / name)


def test_a_picture_without_matplotlib_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("takt.cli.picture_file.find_spec", lambda _: None)

    with pytest.raises(ConfigError, match=r"pip install 'takt-serve\[plot\]'"):
        check_picture("--plot", tmp_path / "p.png")


def test_the_users_style_reaches_no_file(tmp_path: Path) -> None:
    import matplotlib as mpl

    def draw(path: Path) -> bytes:
        with picture(path, width=2, height=1) as figure:
            axes = figure.add_subplot()
            axes.plot([0, 1], [0, 1], label="line")
            dress(axes, "title")
        return path.read_bytes()

    plain = draw(tmp_path / "plain.svg")
    with mpl.rc_context({"axes.facecolor": "red", "font.size": 30}):
        styled = draw(tmp_path / "styled.svg")

    assert styled == plain


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match="cannot write the plot"),
        picture(tmp_path / "nowhere" / "p.png", width=1, height=1),
    ):
        pass


def test_a_full_disk_leaves_the_picture_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    with picture(path, width=1, height=1):
        pass
    good = path.read_bytes()

    with (
        pytest.raises(ConfigError, match=f"cannot write the plot: {FULL}"),
        full_disk(),
        picture(path, width=1, height=1),
    ):
        pass

    assert path.read_bytes() == good
    assert [*tmp_path.iterdir()] == [path]
