from pathlib import Path

import pytest
from tests.policies.lerobot.checkpoints import PI0

from takt.errors import ConfigError
from takt.policies.lerobot.tokenizer import InstructionTokenizer, find_tokenizer

FILE = PI0 / "tokenizer" / "tokenizer.json"


def tokenizer(max_tokens: int = 48) -> InstructionTokenizer:
    return InstructionTokenizer(FILE, max_tokens=max_tokens, pad_token="<pad>", starts_with="<bos>")


def test_what_is_too_long_is_cut_on_the_right_and_keeps_its_start() -> None:
    long = "put the red cube into the bowl " * 30

    ids = tokenizer(8).encode(long)

    assert len(ids) == 8
    assert ids == tokenizer().encode(long)[:8]
    assert ids[0] == tokenizer().id_of("<bos>")


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")

    with pytest.raises(ConfigError, match="not a tokenizer"):
        InstructionTokenizer(path, max_tokens=4, pad_token="<pad>", starts_with=None)
    with pytest.raises(ConfigError, match="no token '<none>'"):
        tokenizer().id_of("<none>")


def test_it_is_found_where_the_operator_says_then_in_the_checkpoint_then_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, cache = tmp_path / "fold", tmp_path / "cache"
    snapshot = cache / "models--team--words" / "snapshots" / "1"
    for folder in (checkpoint, snapshot):
        folder.mkdir(parents=True)
        (folder / "tokenizer.json").write_bytes(FILE.read_bytes())
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))

    assert find_tokenizer(checkpoint, FILE.parent, "team/words") == FILE
    assert find_tokenizer(checkpoint, None, "team/words").parent == checkpoint
    (checkpoint / "tokenizer.json").unlink()
    assert find_tokenizer(checkpoint, None, "team/words").parent == snapshot
    for unsafe in ("../../x", "/etc", "a/b/c"):
        with pytest.raises(ConfigError):
            find_tokenizer(checkpoint, None, unsafe)


def test_the_error_says_which_file_and_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"hf download team/none tokenizer.json"):
        find_tokenizer(tmp_path, None, "team/none")
    with pytest.raises(ConfigError, match="no such file"):
        find_tokenizer(tmp_path, tmp_path / "x", "team/none")
