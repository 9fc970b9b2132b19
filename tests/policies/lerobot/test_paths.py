from pathlib import Path

import pytest

from takt.errors import ConfigError
from takt.policies.lerobot.paths import checkpoint_files, resolve_model


def test_a_name_is_found_in_the_first_root_that_has_it(tmp_path: Path) -> None:
    for root in ("a", "b"):
        (tmp_path / root / "team").mkdir(parents=True)
    (tmp_path / "b" / "team" / "fold").mkdir()

    found = resolve_model("team/fold", [tmp_path / "a", tmp_path / "b"])

    assert found.directory == tmp_path / "b" / "team" / "fold"
    assert found.root == (tmp_path / "b").resolve()


@pytest.mark.parametrize(
    "name",
    ["", "/etc", "../x", "a/../../x", "~/x", "https://hub/x", "s3://x", "a\\b", "a\nb", "x" * 999],
)
def test_a_name_that_is_no_relative_path_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"^model "):
        resolve_model(name, [tmp_path])


def test_a_name_that_no_root_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not found in the 1 configured"):
        resolve_model("fold", [tmp_path])


def test_a_link_out_of_the_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "fold").symlink_to(tmp_path / "secret")

    with pytest.raises(ConfigError, match="leads out"):
        resolve_model("fold", [tmp_path / "root"])


def test_a_file_may_not_be_a_path_or_a_link_out_of_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_text("{}")
    (tmp_path / "fold").mkdir()
    (tmp_path / "fold" / "config.json").symlink_to(tmp_path / "outside.json")
    files = checkpoint_files(tmp_path / "fold")

    with pytest.raises(ConfigError, match="leads out"):
        files.path("config.json")
    for name in ("../outside.json", "/etc/passwd", "..", "a/b"):
        with pytest.raises(ConfigError, match="expected a file name"):
            files.path(name)
    with pytest.raises(ConfigError, match="no such file"):
        files.path("other.json")


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()

    with pytest.raises(ConfigError, match="expected a file"):
        checkpoint_files(tmp_path).path("config.json")
    with pytest.raises(ConfigError, match="no such directory"):
        checkpoint_files(tmp_path / "none")


def test_a_snapshot_in_a_hub_cache_may_link_to_its_blobs(tmp_path: Path) -> None:
    repository = tmp_path / "models--team--fold"
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "1").write_text("{}")
    (snapshot / "config.json").symlink_to(Path("../../blobs/1"))

    assert checkpoint_files(snapshot).path("config.json").read_text() == "{}"
