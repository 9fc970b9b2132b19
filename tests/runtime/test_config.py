"""A worker's configuration travels as one line and refuses what it does not know."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from takt.core.model import Model
from takt.core.profile import Profile
from takt.errors import ConfigError
from takt.runtime.config import WorkerConfig
from takt.schema.commands import DriveIn
from takt.schema.serving import ServedModel

ECHO = ServedModel(name="echo", policy="echo", options={"latency_ms": 5.0}, slo_ms=50.0)
CONFIG = WorkerConfig(
    name="w0", address="a", models=(ECHO,), prefix_cores=(0,), denoise_cores=(1, 2)
)


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(CONFIG.to_json()), **fields}).encode()


def test_a_configuration_survives_the_way_to_the_worker() -> None:
    line = CONFIG.to_json()

    assert b"\n" not in line
    assert WorkerConfig.from_json(line) == CONFIG


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (b"{", "worker configuration"),
        (b"[]", "worker configuration"),
        (b"\xff", "worker configuration"),
        (b'{"name": "w"}', "address"),
        (changed(formatoin="lockstep"), "unknown key 'formatoin'"),
        (changed(formation="waltz"), "no formation 'waltz'; known: monolithic, lockstep, flowing$"),
        (changed(formation_options={"beat": 3}), "beat"),
        (changed(formation="step_admission"), "runs whole denoise loops"),
        (changed(discipline="waltz"), "no discipline 'waltz'"),
        (changed(lateness="waltz"), "lateness must be one of"),
        (changed(max_requests=0), "kv_slots"),
        (changed(prefix_cores=[0, 1]), "disjoint"),
        (changed(precision="f8"), "precision"),
        (changed(name=""), "needs a name"),
        (changed(models=[{"name": "a", "policy": "echo"}] * 2), "must differ"),
    ],
)
def test_an_impossible_configuration_is_refused(document: bytes, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        WorkerConfig.from_json(document)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"paced": "rtx-9000"}, "no device 'rtx-9000'"),
        ({"paced": "h100"}, "model 'echo': a paced device runs stand-ins"),
        ({"paced_seed": 1}, "paced_seed is for a paced device"),
        ({"models": [{"name": "fold", "policy": "paced:pi0"}]}, "needs a paced device"),
    ],
)
def test_paced_devices_and_policies_that_compute_are_kept_apart(
    fields: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        WorkerConfig.from_json(changed(**fields))


def test_batch_limits_narrow_what_the_scheduler_may_use() -> None:
    config = WorkerConfig(name="w", address="x/w", models=(), prefix_limit=2, denoise_limit=4)
    model = Model(
        name="m", architecture="m", slo=1, prefix_sizes=(1, 2, 4), denoise_sizes=(1, 4, 8)
    )

    setup = config.setup((model,), Profile(units=1, shares=(1,), solo={}, slowdown={}))

    assert setup.models[0].prefix_sizes == (1, 2)
    assert setup.models[0].denoise_sizes == (1, 4)


def test_an_impossible_batch_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match="denoise_limit must be at least 1, got 0"):
        WorkerConfig(name="w", address="x/w", models=(), denoise_limit=0)


def test_a_profile_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.json")
    config = WorkerConfig(name="w", address="x/w", models=(), profile_path=missing)

    with pytest.raises(ConfigError, match=r"none\.json: cannot be read"):
        config.measured()


FLOWING = DriveIn(formation="flowing", options={"gathering": 4}, prefix_limit=1, denoise_limit=None)


def test_another_formation_leaves_the_rest_of_a_worker_as_it_is() -> None:
    config = WorkerConfig(name="w", address="x/w", models=(), discipline="round_robin")

    driven = config.driven(FLOWING)

    assert driven == dataclasses.replace(
        config, formation="flowing", formation_options={"gathering": 4}, prefix_limit=1
    )


@pytest.mark.parametrize(
    "fields",
    [{"formation": "hovering"}, {"options": {"gather": 4}}, {"prefix_limit": 0}],
)
def test_a_formation_that_no_worker_drives_is_refused(fields: dict[str, Any]) -> None:
    config = WorkerConfig(name="w", address="x/w", models=())

    with pytest.raises(ConfigError):
        config.driven(dataclasses.replace(FLOWING, **fields))
