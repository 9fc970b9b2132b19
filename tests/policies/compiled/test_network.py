"""The engine computes what LeRobot computed, and a damaged export never serves."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="exports are made with torch")

from tests.policies.compiled.exported import SIZES, copied, exported, network_of  # noqa: E402
from tests.policies.lerobot.checkpoints import PI0, SMOLVLA, opened, seen  # noqa: E402

from takt.core.request import Stage  # noqa: E402
from takt.errors import ConfigError, InvariantError  # noqa: E402
from takt.policies.compiled import network as network_module  # noqa: E402
from takt.policies.compiled.gate import TOLERANCES, ParityError  # noqa: E402
from takt.policies.compiled.network import CompiledNetwork, has_bf16  # noqa: E402
from takt.policies.interface import Placement  # noqa: E402
from takt.policies.lerobot.golden import read_golden  # noqa: E402
from takt.policies.lerobot.rows import FlowPreprocessor  # noqa: E402
from takt.policies.lerobot.tensor_file import TensorFile  # noqa: E402
from takt.schema.observation import Observation  # noqa: E402
from takt.schema.row import Row, RowRequest  # noqa: E402

pytestmark = pytest.mark.slow

CHUNK_TOLERANCE = 3e-5


@pytest.fixture(params=[PI0, SMOLVLA], ids=["pi0", "smolvla"], scope="module")
def golden(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(scope="module")
def loaded(golden: Path) -> Iterator[CompiledNetwork]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    network = network_of(opened(golden, SIZES), exported(golden))
    network.load()
    network.warm()
    yield network
    torch.set_num_threads(before)


def row_of(network: CompiledNetwork, observation: Observation, session: str = "") -> Row:
    slot = {t.name: np.zeros(t.shape, t.dtype) for t in network.spec.slot_tensors}
    preprocessor = FlowPreprocessor(network.spec, network._checkpoint)
    header = preprocessor.write(observation, slot, RowRequest(session=session))
    return Row(header, slot)


def rows_of(network: CompiledNetwork) -> list[Row]:
    given = [("fold", "front"), ("stack " * 30, "front", "wrist"), ("put it away", "wrist")]
    return [row_of(network, seen(*each), str(n)) for n, each in enumerate(given)]


def alone(network: CompiledNetwork, row: Row) -> np.ndarray:
    layout = row.header.layout
    network.prefix([row], size=1, layout=layout, kv_slots=[3])
    return network.denoise([row], size=1, layout=layout, kv_slots=[3])[0]


def scale_a_weight(golden: Path, stored: Path) -> None:
    """Make one matrix of the checkpoint 2 % larger where it lies in an export."""
    content = stored.read_bytes()
    with TensorFile(golden / "checkpoint" / "model.safetensors") as file:
        matrices = [file.array(name) for name in file.tensors if "mlp" in name]
    found = next(m for m in matrices if content.count(m.tobytes()) == 1)
    stored.write_bytes(content.replace(found.tobytes(), (1.02 * found).tobytes()))


def test_golden_chunks_are_reproduced_within_the_chunk_tolerance(
    golden: Path, loaded: CompiledNetwork
) -> None:
    cases = read_golden(golden)
    (case,) = [case for case in cases.cases if case.name == "A"]
    names = loaded._checkpoint.pipeline.robot_names
    name = case.observations[0]
    row = row_of(
        loaded,
        Observation(
            state=cases.frames[f"{name}.state"],
            images={names.get(c, c): cases.frames[f"{name}.{c}"] for c in case.cameras},
            prompt=case.tasks[0],
            extra={"noise": case.noise[0]},
        ),
    )

    golden_chunk = case.tensors["x_final"][0]

    assert np.abs(alone(loaded, row) - golden_chunk).max() < CHUNK_TOLERANCE


def test_rows_of_a_batch_do_not_know_of_each_other(loaded: CompiledNetwork) -> None:
    rows = rows_of(loaded)
    singles = np.stack([alone(loaded, row) for row in rows])
    last = len(loaded.spec.layouts) - 1

    loaded.prefix(rows, size=3, layout=last, kv_slots=[5, 0, 2])
    together = loaded.denoise(rows, size=4, layout=last, kv_slots=[5, 0, 2])

    np.testing.assert_allclose(together, singles, atol=1e-5)


def test_a_row_of_nan_hurts_neither_its_mates_nor_the_next_in_its_slot(
    loaded: CompiledNetwork,
) -> None:
    rows = rows_of(loaded)
    singles = [alone(loaded, row) for row in rows]
    broken = Row(rows[1].header, {n: a.copy() for n, a in rows[1].tensors.items()})
    broken.tensors["images"][...] = np.nan
    last = len(loaded.spec.layouts) - 1

    loaded.prefix([rows[0], broken, rows[2]], size=3, layout=last, kv_slots=[0, 1, 2])
    mixed = loaded.denoise([rows[0], broken, rows[2]], size=4, layout=last, kv_slots=[0, 1, 2])
    loaded.prefix([rows[0]], size=1, layout=rows[0].header.layout, kv_slots=[1])
    after = loaded.denoise([rows[0]], size=1, layout=last, kv_slots=[1])

    assert np.isnan(mixed[1]).all()
    np.testing.assert_allclose(mixed[[0, 2]], [singles[0], singles[2]], atol=1e-5)
    np.testing.assert_allclose(after[0], singles[0], atol=1e-5)


def test_f32_is_well_within_the_gate_and_bf16_within_its_own(
    golden: Path, loaded: CompiledNetwork
) -> None:
    assert 0 < loaded.difference < CHUNK_TOLERANCE
    if not has_bf16():
        pytest.skip("this CPU has no bf16")
    narrow = network_of(opened(golden, SIZES), exported(golden), "bf16")
    narrow.load()

    largest = float(np.abs(exported(golden).expected()).max())
    assert loaded.difference < narrow.difference < TOLERANCES["bf16"] * largest


@pytest.mark.parametrize("stage", Stage)
def test_perturbed_weights_close_the_gate_and_nothing_stays_loaded(
    golden: Path, tmp_path: Path, stage: Stage
) -> None:
    entry = copied(exported(golden), tmp_path)
    scale_a_weight(golden, entry.graph(stage).with_suffix(".bin"))
    network = network_of(opened(golden, SIZES), entry)

    with pytest.raises(ParityError, match=r"off by [\d.e-]+, f32 explains"):
        network.load()
    with pytest.raises(InvariantError, match="not loaded"):
        network.prefix(rows_of(network), size=3, layout=0, kv_slots=[0, 1, 2])


def test_a_graph_that_is_no_graph_is_named(golden: Path, tmp_path: Path) -> None:
    entry = copied(exported(golden), tmp_path)
    entry.graph(Stage.DENOISE).write_text("<net")

    with pytest.raises(ConfigError, match=r"denoise\.xml: the engine cannot read it"):
        network_of(opened(golden, SIZES), entry).load()


def test_a_cache_with_too_few_slots_is_refused(golden: Path) -> None:
    checkpoint, entry = opened(golden, SIZES), exported(golden)
    network = CompiledNetwork(
        checkpoint.spec("arm"), checkpoint, Placement(kv_slots=3), lambda: entry
    )

    with pytest.raises(ConfigError, match="3 cache slots, the largest batch"):
        network.load()


def test_bf16_on_a_cpu_without_it_is_refused(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_module, "has_bf16", lambda: False)

    with pytest.raises(ConfigError, match="no bf16"):
        network_of(opened(golden, SIZES), exported(golden), "bf16").load()


def test_a_size_that_was_not_captured_is_our_own_mistake(loaded: CompiledNetwork) -> None:
    with pytest.raises(InvariantError):
        loaded.prefix(rows_of(loaded), size=2, layout=0, kv_slots=[0, 1, 2])
    assert loaded.launch_time(Stage.PREFIX, 2) == 0
    loaded.enter_lane(Stage.PREFIX)
