"""What processes a server consists of."""

from __future__ import annotations

import pytest

from takt.errors import ConfigError
from takt.schema.serving import ServedModel
from takt.server.composition import Composition, ServerPlan, split_cores

ECHO = ServedModel(name="echo", policy="echo")


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
        ServerPlan(models=())


def test_a_model_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="'echo' is given twice"):
        ServerPlan(models=(ECHO, ECHO))


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "x" * 201])
def test_a_name_that_nobody_can_print_is_refused_before_a_process_starts(name: str) -> None:
    with pytest.raises(ConfigError, match="expected a printable name") as refused:
        ServerPlan(models=(ServedModel(name=name, policy="echo"),))

    assert str(refused.value).isprintable()


def test_the_gateway_is_told_where_the_worker_listens() -> None:
    composition = Composition.of(ServerPlan(models=(ECHO,), token="secret"))
    try:
        worker, gateway = composition.workers[0].config, composition.gateways[0].config
        assert gateway["gateway"]["workers"] == [
            {"name": worker["name"], "address": worker["address"]}
        ]
        assert worker["listening_fd"] in composition.workers[0].inherited
        assert gateway["openpi"]["token"] == "secret"
    finally:
        composition.close()


def test_the_token_is_not_on_any_command_line() -> None:
    composition = Composition.of(ServerPlan(models=(ECHO,), token="secret"))
    try:
        for child in (*composition.workers, *composition.gateways):
            assert not any("secret" in part for part in child.command)
    finally:
        composition.close()
