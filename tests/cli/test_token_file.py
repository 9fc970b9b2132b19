"""The token: from a file, else from the environment, never from a file without one."""

from pathlib import Path

import pytest

from takt.cli.token_file import read_token
from takt.errors import ConfigError


def test_the_file_goes_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("of the file\n")
    monkeypatch.setenv("TAKT_TOKEN", "of the environment")

    assert read_token(tmp_path / "token") == "of the file"
    assert read_token(None) == "of the environment"


def test_an_empty_environment_is_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAKT_TOKEN", "")

    assert read_token(None) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file or directory"),
        (b"", "the file is empty"),
        (b"\n", "the file is empty"),
        (b"\xff\xfe", "expected text, got other bytes"),
    ],
)
def test_a_file_without_a_token_is_refused(content: bytes | None, why: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ConfigError) as refused:
        read_token(file)

    assert str(refused.value) == f"--token-file {file}: {why}"
