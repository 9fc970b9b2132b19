import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="exports are made with torch")

from tests.policies.compiled.exported import copied, exported
from tests.policies.lerobot.checkpoints import PI0, SMOLVLA, opened

from takt.core.request import Stage
from takt.errors import ConfigError
from takt.policies.compiled import export
from takt.policies.compiled.cache import Entry
from takt.policies.lerobot.opening import export_entry, make_network

pytestmark = pytest.mark.slow

SERVES_ALONE = """
import sys
for name in ("torch", "transformers"):
    sys.modules[name] = None
from takt.policies.catalog import open_policy
from takt.policies.interface import Placement
options = {{"engine": "openvino", "cache": {cache!r}, "tokenizer": {tokenizer!r}}}
network = open_policy({path!r}, options=options).network(Placement(kv_slots=4))
network.load()
print(network.difference < 1e-4)
"""


@pytest.mark.parametrize("golden", [PI0, SMOLVLA], ids=["pi0", "smolvla"])
def test_weights_are_stored_once_whatever_the_number_of_steps_and_shapes(golden: Path) -> None:
    entry = exported(golden)

    stored = sum(entry.graph(stage).with_suffix(".bin").stat().st_size for stage in Stage)
    weights = (golden / "checkpoint" / "model.safetensors").stat().st_size
    assert 0.5 * weights < stored < 1.2 * weights


def test_an_export_in_the_cache_is_used_and_made_anew_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = copied(exported(PI0), tmp_path)
    made: list[Entry] = []
    monkeypatch.setattr(
        export, "export_checkpoint", lambda checkpoint, make, entry: made.append(entry)
    )

    assert export_entry(opened(PI0), str(tmp_path)) == there
    assert made == []
    export_entry(opened(PI0), str(tmp_path), anew=True)
    export_entry(opened(PI0), str(tmp_path / "other"))
    assert [entry.folder.parent for entry in made] == [tmp_path, tmp_path / "other"]


def test_serving_from_the_cache_needs_no_torch() -> None:
    folder = exported(SMOLVLA).folder
    code = SERVES_ALONE.format(
        cache=str(folder.parent),
        path=str(SMOLVLA / "checkpoint"),
        tokenizer=str(SMOLVLA / "tokenizer"),
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "True", done.stderr


def test_exporting_without_torch_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "takt.policies.compiled.export", None)

    with pytest.raises(ConfigError, match="needs torch"):
        export_entry(opened(PI0), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_network_the_engine_cannot_express_is_one_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object) -> None:
        raise RuntimeError("no such operation\nand much more")

    monkeypatch.setattr(export, "_converted", broken)
    entry = Entry(folder=tmp_path / "key")
    checkpoint = opened(PI0)

    with pytest.raises(ConfigError, match=r"cannot be exported: no such operation$"):
        export.export_checkpoint(checkpoint, lambda: make_network(checkpoint), entry)
    assert list(tmp_path.iterdir()) == []
