"""The LeRobot door in a fleet file: its gateway, the models' aliases and filters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from takt.doors.lerobot_options import LerobotModelOptions, LerobotOptions, SimilarState
from takt.errors import ConfigError
from takt.server.composition import Composition, ServerPlan
from takt.server.fleet_server import server_plan
from takt.server.gateway_process import GatewayProcessConfig


def content() -> dict[str, Any]:
    return {
        "models": {
            "fold": {
                "architecture": "pi0",
                "slo_ms": 156,
                "aliases": ["team/fold"],
                "similar_state": {"tolerance": 0.5, "unit": "deg"},
            },
            "smolvla": {"slo_ms": 65, "aliases": ["team/smolvla"]},
        },
        "devices": {
            "left": {"paced": "h100", "models": ["fold"]},
            "right": {"paced": "h100", "models": ["smolvla"]},
        },
        "gateways": {
            "front": {
                "devices": ["left"],
                "host": "0.0.0.0",
                "lerobot": 8080,
                "lerobot_allow_from": ["10.0.0.0/24"],
            },
            "back": {"openpi": 8001, "devices": ["right"]},
        },
    }


def planned(tmp_path: Path, what: dict[str, Any], **options: Any) -> ServerPlan:  # noqa: ANN401
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(what, sort_keys=False), encoding="utf-8")
    return server_plan(path, cores=(0,), token="s3cret", **options)


def test_a_gateway_has_the_door_that_its_entry_names(tmp_path: Path) -> None:
    plan = planned(tmp_path, content(), state_dir=tmp_path / "state")

    front, back = plan.gateways
    assert back.lerobot is None
    assert front.lerobot == LerobotOptions(
        host="0.0.0.0",
        port=8080,
        allow_from=("10.0.0.0/24",),
        state_dir=str(tmp_path / "state" / "front"),
        models={
            "fold": LerobotModelOptions(
                aliases=("team/fold",), similar_state=SimilarState(tolerance=0.5, unit="deg")
            )
        },
    )


def test_the_gateway_process_is_told_all_of_it(tmp_path: Path) -> None:
    plan = planned(tmp_path, content())

    composition = Composition.of(plan)
    composition.close()
    documents = [json.dumps(child.config).encode() for child in composition.gateways]
    told = [GatewayProcessConfig.from_json(document) for document in documents]

    assert [config.lerobot for config in told] == [plan.gateways[0].lerobot, None]


@pytest.mark.parametrize(
    ("similar", "words"),
    [({"tolerance": 0, "unit": "deg"}, "tolerance"), ({"tolerance": 1}, "unit")],
)
def test_a_tolerance_needs_a_number_and_a_unit(
    tmp_path: Path, similar: dict[str, Any], words: str
) -> None:
    what = content()
    what["models"]["fold"]["similar_state"] = similar

    with pytest.raises(ConfigError, match=words):
        planned(tmp_path, what)


def test_two_doors_cannot_share_a_port(tmp_path: Path) -> None:
    what = content()
    what["gateways"]["front"]["lerobot"] = 8000

    with pytest.raises(ConfigError, match=r"lerobot: port 8000 is that of gateways\.front\.openpi"):
        planned(tmp_path, what)
