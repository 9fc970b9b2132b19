"""What processes a server consists of, and which assignments are impossible."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from takt.errors import ConfigError
from takt.schema.serving import ServedModel
from takt.server.composition import (
    Composition,
    DevicePlan,
    GatewayPlan,
    ServerPlan,
    split_cores,
)

ECHO = ServedModel(name="echo", policy="echo")
PI0 = ServedModel(name="pi0", policy="paced:pi0")
SMOLVLA = ServedModel(name="smolvla", policy="paced:smolvla")


def one(*models: ServedModel, token: str | None = None) -> ServerPlan:
    return ServerPlan(devices=(DevicePlan(models=models),), token=token)


def gpu(name: str, *models: ServedModel, paced: str = "h100") -> DevicePlan:
    return DevicePlan(name=name, models=models, paced=paced)


def gateway(name: str, *devices: str, port: int = 0, default: str | None = None) -> GatewayPlan:
    return GatewayPlan(name=name, devices=devices, openpi_port=port, default_model=default)


@contextmanager
def composed(plan: ServerPlan) -> Iterator[Composition]:
    composition = Composition.of(plan)
    try:
        yield composition
    finally:
        composition.close()


def test_two_cores_give_each_lane_one() -> None:
    assert split_cores([0, 1]) == ((0,), (1,))


def test_one_core_is_left_to_the_kernel() -> None:
    assert split_cores([3]) == ((), ())


def test_lanes_never_share_a_core() -> None:
    prefix, denoise = split_cores([0, 1, 2, 3, 5])

    assert not set(prefix) & set(denoise)
    assert set(prefix) | set(denoise) == {0, 1, 2, 3, 5}


def test_a_server_without_models_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one --model"):
        one()


def test_a_model_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="'echo' is given twice"):
        one(ECHO, ECHO)


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "x" * 201])
def test_a_name_that_nobody_can_print_is_refused_before_a_process_starts(name: str) -> None:
    with pytest.raises(ConfigError, match="expected a printable name") as refused:
        one(ServedModel(name=name, policy="echo"))

    assert str(refused.value).isprintable()


def test_the_gateway_is_told_where_the_worker_listens() -> None:
    with composed(one(ECHO, token="secret")) as composition:
        worker, told = composition.workers[0].config, composition.gateways[0].config
        assert told["gateway"]["workers"] == [
            {"name": worker["name"], "address": worker["address"]}
        ]
        assert worker["listening_fd"] in composition.workers[0].inherited
        assert told["openpi"]["token"] == "secret"


def test_the_token_is_not_on_any_command_line() -> None:
    with composed(one(ECHO, token="secret")) as composition:
        for child in (*composition.workers, *composition.gateways):
            assert not any("secret" in part for part in child.command)


def test_a_worker_that_cannot_be_configured_leaves_no_socket_behind() -> None:
    device = DevicePlan(models=(ECHO,), formation="disaggregated")

    with pytest.raises(ConfigError, match="needs several devices"):
        Composition.of(ServerPlan(devices=(device,)))
    gc.collect()  # a socket that was left open would warn


def traced(path: Path) -> ServerPlan:
    return ServerPlan(devices=(DevicePlan(models=(ECHO,), trace_path=str(path)),))


def test_a_second_server_does_not_touch_the_trace_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with composed(traced(path)):
        path.write_text("recorded\n")

        with pytest.raises(ConfigError, match=f"^--trace {path}: another server still writes it"):
            Composition.of(traced(path))

        assert path.read_text() == "recorded\n"
    with composed(traced(path)):
        assert path.read_text() == ""
    gc.collect()  # a socket that was left open would warn


def test_a_worker_that_outlives_its_supervisor_keeps_its_trace(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with composed(traced(path)) as composition:
        (held,) = composition.traces
        assert held in composition.workers[0].inherited
        worker = os.dup(held)

    with pytest.raises(ConfigError, match="another server still writes it"):
        Composition.of(traced(path))
    os.close(worker)


def test_two_devices_do_not_share_a_trace(tmp_path: Path) -> None:
    path = str(tmp_path / "run.jsonl")
    devices = tuple(replace(gpu(name, PI0), trace_path=path) for name in ("left", "right"))

    with pytest.raises(ConfigError, match="another server still writes it"):
        Composition.of(ServerPlan(devices=devices, gateways=(gateway("0", "left", "right"),)))


# Several devices, several gateways

TWO = (gpu("left", PI0, SMOLVLA), gpu("right", PI0))


def test_a_gateway_is_told_of_its_own_devices_and_their_models() -> None:
    plan = ServerPlan(
        devices=TWO,
        gateways=(gateway("front", "left", "right"), gateway("back", "right", port=8001)),
    )
    with composed(plan) as composition:
        left, right = (worker.config["address"] for worker in composition.workers)
        front, back = (child.config["gateway"] for child in composition.gateways)

    assert left != right
    assert [worker["address"] for worker in front["workers"]] == [left, right]
    assert [worker["address"] for worker in back["workers"]] == [right]
    assert [model["name"] for model in front["models"]] == ["pi0", "smolvla"]
    assert [model["name"] for model in back["models"]] == ["pi0"]
    assert composition.gateways[1].config["openpi"]["port"] == 8001


def test_no_two_processes_have_one_name() -> None:
    plan = ServerPlan(devices=TWO, gateways=(gateway("left", "left"), gateway("right", "right")))
    with composed(plan) as composition:
        names = [child.name for child in (*composition.workers, *composition.gateways)]

    assert names == ["worker-left", "worker-right", "gateway-left", "gateway-right"]


def test_a_worker_is_told_how_its_device_is_driven() -> None:
    device = DevicePlan(
        name="gpu",
        models=(PI0,),
        paced="h100",
        paced_seed=3,
        formation="flowing",
        options={"gathering": 2_000_000},
        lateness="serve_late",
    )
    with composed(ServerPlan(devices=(device,), gateways=(gateway("0", "gpu"),))) as composition:
        told = composition.workers[0].config

    assert (told["paced"], told["paced_seed"]) == ("h100", 3)
    assert (told["formation"], told["formation_options"]) == ("flowing", {"gathering": 2_000_000})
    assert told["lateness"] == "serve_late"


def test_a_plan_names_the_gpus_it_rehearses() -> None:
    both = (gpu("a", PI0), gpu("b", PI0, paced="h200"), gpu("c", PI0))

    assert ServerPlan(devices=both, gateways=(gateway("0", "a", "b", "c"),)).paced == "h100, h200"
    assert one(ECHO).paced is None


IMPOSSIBLE = {
    "gateways.front.devices: no device 'middle'; there are: left, right": (
        TWO,
        (gateway("front", "left", "right", "middle"),),
    ),
    "gateways.front.devices: 'left' is named twice": (TWO, (gateway("front", "left", "left"),)),
    "gateways.front.devices: at least one is needed": (TWO, (gateway("front"),)),
    "devices.right: no gateway sends to it": (TWO, (gateway("front", "left"),)),
    "gateways.back.default_model: 'smolvla' is on none of its devices; they serve: pi0": (
        TWO,
        (gateway("front", "left"), gateway("back", "right", default="smolvla")),
    ),
    "gateways.back.openpi: port 8000 is that of gateways.front.openpi": (
        TWO,
        (gateway("front", "left", port=8000), gateway("back", "right", port=8000)),
    ),
    "devices: 'left' is named twice": ((TWO[0], TWO[0]), (gateway("front", "left"),)),
    "gateways: 'front' is named twice": (TWO, (gateway("front", "left"),) * 2),
    "gateways: at least one is needed, or robots reach nobody": (TWO, ()),
    "devices.right.models: 'pi0' differs from the one of the same name on another device": (
        (TWO[0], gpu("right", ServedModel(name="pi0", policy="paced:pi05"))),
        (gateway("front", "left", "right"),),
    ),
    "devices.b: core 1 is that of devices.a": (
        (
            DevicePlan(name="a", models=(ECHO,), prefix_cores=(0,), denoise_cores=(1,)),
            DevicePlan(name="b", models=(ECHO,), prefix_cores=(1,), denoise_cores=(2,)),
        ),
        (gateway("front", "a", "b"),),
    ),
}


@pytest.mark.parametrize("words", IMPOSSIBLE)
def test_an_impossible_assignment_is_refused_with_its_place(words: str) -> None:
    devices, gateways = IMPOSSIBLE[words]

    with pytest.raises(ConfigError) as refused:
        ServerPlan(devices=devices, gateways=gateways)

    assert str(refused.value) == words
