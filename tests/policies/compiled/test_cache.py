from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.policies.lerobot.checkpoints import PI0, SMOLVLA, copied, opened

from takt.errors import ConfigError
from takt.policies.compiled import cache
from takt.policies.compiled.cache import EXPECTED, Entry, default_cache, export_key, store
from takt.policies.lerobot.opening import CheckpointOptions, open_checkpoint


def finished(entry: Entry) -> None:
    np.savez(entry.folder / EXPECTED, chunks=np.zeros((1, 2, 3, 4), np.float32))


def test_the_same_checkpoint_has_the_same_key_wherever_it_lies(tmp_path: Path) -> None:
    moved = open_checkpoint(copied(PI0, tmp_path), CheckpointOptions())

    assert export_key(moved, ()) == export_key(opened(PI0), ())


def test_batch_sizes_do_not_change_the_key_as_graphs_hold_none() -> None:
    other = opened(PI0, CheckpointOptions(prefix_sizes=(1, 8)))

    assert export_key(other, ()) == export_key(opened(PI0), ())


def test_whatever_a_graph_depends_on_changes_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = opened(SMOLVLA)
    dims = copied(SMOLVLA, tmp_path)
    (dims / "dims.json").write_text((SMOLVLA / "dims.json").read_text() + "\n")
    keys = {
        export_key(checkpoint, ()),
        export_key(checkpoint, (1, 2, 1)),
        export_key(opened(PI0), ()),
        export_key(replace(checkpoint, digest="sha256:other"), ()),
        export_key(replace(checkpoint, layouts=checkpoint.layouts[1:]), ()),
        export_key(open_checkpoint(dims, CheckpointOptions()), ()),
    }
    monkeypatch.setattr(cache.ov, "__version__", "another")
    keys.add(export_key(checkpoint, ()))
    monkeypatch.setattr(cache, "_NETWORK_CODE", ("networks",))
    keys.add(export_key(checkpoint, ()))

    assert len(keys) == 8


def test_an_entry_appears_whole(tmp_path: Path) -> None:
    entry = Entry(folder=tmp_path / "cache" / "key")

    def write(to: Entry) -> None:
        finished(to)
        assert not entry.is_there

    store(entry, write)

    assert entry.is_there
    assert entry.expected().shape == (1, 2, 3, 4)
    assert [path.name for path in entry.folder.parent.iterdir()] == ["key"]


def test_an_export_that_fails_leaves_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    entry = Entry(folder=tmp_path / "key")
    store(entry, finished)

    def fail(to: Entry) -> None:
        (to.folder / "prefix.xml").write_text("half")
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        store(entry, fail)

    assert entry.is_there
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for folder in (tmp_path / "file", tmp_path / ("n" * 300)):  # a name that no folder can have
        entry = Entry(folder=folder / "key")
        assert not entry.is_there
        with pytest.raises(ConfigError, match="cannot be written"):
            store(entry, finished)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04K\x01."])
def test_damaged_reference_chunks_are_named_and_never_unpickled(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / EXPECTED).write_bytes(content)

    with pytest.raises(ConfigError, match=r"expected\.npz: cannot be read.*takt export"):
        Entry(folder=tmp_path).expected()


def test_the_cache_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "takt" / "engines"

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "takt" / "engines"
