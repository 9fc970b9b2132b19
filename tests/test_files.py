"""A file is replaced as a whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from takt.files import replacing


def break_off(path: Path, error: BaseException) -> None:
    with replacing(path) as fresh:
        fresh.write_text("ne")
        raise error


def test_a_new_file_is_there_once_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"

    with replacing(path) as fresh:
        fresh.write_text("new")
        assert not path.exists()

    assert path.read_text() == "new"
    assert [*tmp_path.iterdir()] == [path]


def test_the_old_content_is_there_until_the_new_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text("old")

    with replacing(path) as fresh:
        fresh.write_text("new")
        assert path.read_text() == "old"

    assert path.read_text() == "new"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("error", [OSError("the disk is full"), KeyboardInterrupt()])
@pytest.mark.parametrize("old", ["old", None])
def test_an_error_leaves_what_was_there_and_nothing_else(
    tmp_path: Path, error: BaseException, old: str | None
) -> None:
    path = tmp_path / "profile.json"
    if old is not None:
        path.write_text(old)

    with pytest.raises(type(error)):
        break_off(path, error)

    assert [(file, file.read_text()) for file in tmp_path.iterdir()] == (
        [] if old is None else [(path, old)]
    )


def test_it_has_the_suffix_by_which_writers_know_what_to_write(tmp_path: Path) -> None:
    with replacing(tmp_path / "plot.svg") as fresh:
        assert fresh.suffix == ".svg"
        assert fresh.parent == tmp_path


def test_a_link_stays_one_and_leads_to_the_new_content(tmp_path: Path) -> None:
    target, link = tmp_path / "stored", tmp_path / "plot.svg"
    target.write_text("old")
    link.symlink_to(target)

    with replacing(link) as fresh:
        assert fresh.suffix == ".svg"
        fresh.write_text("new")

    assert link.is_symlink()
    assert target.read_text() == "new"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664])
def test_permissions_stay_those_of_the_old_file(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "profile.json"
    path.write_text("old")
    path.chmod(mode)

    with replacing(path) as fresh:
        fresh.write_text("new")

    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_permissions_of_a_new_file_are_the_usual_ones(tmp_path: Path) -> None:
    usual, path = tmp_path / "usual", tmp_path / "profile.json"
    usual.write_text("")

    with replacing(path):
        pass

    assert path.stat().st_mode == usual.stat().st_mode


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_must_not_be_written_is_not_replaced_either(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text("old")
    path.chmod(0o444)

    with pytest.raises(PermissionError, match="Permission denied"), replacing(path):
        pass

    assert path.read_text() == "old"


def test_a_device_is_written_itself_and_stays_what_it_is() -> None:
    with replacing(Path("/dev/null")) as fresh:
        assert fresh == Path("/dev/null")

    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "none" / "profile.json"):
        pass
