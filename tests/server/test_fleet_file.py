"""A fleet file says what is simulated, or is refused with one line that names the place."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from takt.core.scheduler import Lateness
from takt.errors import ConfigError
from takt.hardware import model_for, profile_for
from takt.server.fleet_file import FleetFile
from takt.sim.loop import simulate
from takt.sim.network import ConstantNetwork, LogNormalNetwork, Wifi7Network
from takt.units import SECOND, ms

PROFILE = {
    "units": 4,
    "shares": [2, 4],
    "slowdown": {"prefix": 1.1, "denoise": {2: 1.2, 4: 2.0}},
    "architectures": {"pi0": {"prefix_ms": {1: 10, 2: 16}, "denoise_ms": {1: 20, 2: 24}}},
}


def content() -> dict[str, Any]:
    """A small fleet file, to be changed in one place."""
    return {
        "profiles": {"gpu": PROFILE},
        "models": {"pick": {"architecture": "pi0", "slo_ms": 100, "prefix_sizes": [1, 2]}},
        "devices": {"gpu0": {"profile": "gpu", "models": ["pick"]}},
        "robots": [{"model": "pick", "count": 3, "rate_hz": 2}],
        "network": {"kind": "constant"},
    }


def changed(place: str, value: object) -> dict[str, Any]:
    """The content with ``value`` at ``place``, keys and indices separated by dots."""
    whole = yaml.safe_load(yaml.safe_dump(content()))
    *way, last = [int(step) if step.isdigit() else step for step in place.split(".")]
    part = whole
    for step in way:
        part = part.setdefault(step, {}) if isinstance(part, dict) else part[step]
    part[last] = value
    return whole


def read(tmp_path: Path, what: dict[str, Any]) -> FleetFile:
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(what), encoding="utf-8")
    return FleetFile.read(path)


def refusal(tmp_path: Path, what: dict[str, Any]) -> str:
    """The message, after the file's name."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, what)
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"{tmp_path / 'fleet.yaml'}: ")


def test_a_file_says_what_is_simulated(tmp_path: Path) -> None:
    fleet = read(tmp_path, content()).fleet()

    setup, group = fleet.devices["gpu0"], fleet.robots[0]
    model = setup.models[0]
    assert (model.name, model.architecture, model.slo) == ("pick", "pi0", ms(100))
    assert (model.prefix_sizes, model.denoise_sizes) == ((1, 2), (1,))
    assert (setup.formation, setup.discipline) == ("lockstep", "earliest_deadline")
    assert setup.lateness is Lateness.YIELD
    assert setup.profile.units == 4
    assert (group.model, group.count, group.device, group.rate_hz) == ("pick", 3, "gpu0", 2.0)
    assert fleet.network == ConstantNetwork()


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    file = read(tmp_path, {key: content()[key] for key in ("profiles", "models", "devices")})

    assert file.fleet().robots == ()
    assert file.fleet().network == Wifi7Network()
    assert (file.simulation.seconds, file.simulation.warm_up_seconds) == (60.0, 5.0)
    assert file.simulation.seed == 0


def test_an_architecture_is_called_like_its_model_unless_it_is_named(tmp_path: Path) -> None:
    what = content()
    what["models"] = {"pi0": {"slo_ms": 50}}
    what["devices"]["gpu0"]["models"] = ["pi0"]
    what["robots"] = []

    assert read(tmp_path, what).fleet().devices["gpu0"].models[0].architecture == "pi0"


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ({"kind": "constant", "up_ms": 4}, ConstantNetwork(up_ms=4.0)),
        (
            {"kind": "log_normal", "sigma": 0.1, "burst_ms": [5, 6]},
            LogNormalNetwork(sigma=0.1, burst_ms=(5.0, 6.0)),
        ),
        (
            {"kind": "wifi7", "encoding": "jpeg", "planned_robots": 4},
            Wifi7Network(encoding="jpeg", planned_robots=4),
        ),
    ],
)
def test_each_kind_of_network_can_be_named(
    tmp_path: Path, network: dict[str, Any], expected: object
) -> None:
    assert read(tmp_path, changed("network", network)).fleet().network == expected


def test_robots_may_have_a_network_of_their_own(tmp_path: Path) -> None:
    what = content()
    what["robots"].append({**what["robots"][0], "network": {"kind": "constant", "up_ms": 4}})

    fleet = read(tmp_path, what).fleet()

    assert [group.network for group in fleet.robots][-1] == ConstantNetwork(up_ms=4.0)
    assert fleet.robots[0].network is None


def test_an_impossible_network_of_robots_is_refused_by_its_place(tmp_path: Path) -> None:
    what = content()
    what["robots"][0]["network"] = {"kind": "log_normal", "burst_ms": [6, 5]}

    with pytest.raises(ConfigError, match=r"robots\[0\]: network: burst_ms"):
        read(tmp_path, what)


def test_groups_of_one_model_get_names_that_differ(tmp_path: Path) -> None:
    group = content()["robots"][0]
    what = changed("robots", [group, {**group, "name": "arms"}, group, group])

    names = [group.name for group in read(tmp_path, what).fleet().robots]

    assert names == ["pick", "arms", "pick.2", "pick.3"]


def test_a_device_is_named_where_several_serve_the_model(tmp_path: Path) -> None:
    twice = changed("devices.gpu1", content()["devices"]["gpu0"])

    message = "robots[0]: device: missing; 'pick' is served by gpu0, gpu1"
    assert refusal(tmp_path, twice) == message

    twice["robots"][0]["device"] = "gpu1"
    assert read(tmp_path, twice).fleet().robots[0].device == "gpu1"


def test_a_profile_may_lie_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "gpu.yaml").write_text(yaml.safe_dump(PROFILE), encoding="utf-8")

    apart = read(tmp_path, changed("profiles.gpu", "profiles/gpu.yaml"))

    assert apart == read(tmp_path, content())


def test_a_profile_that_is_not_there_is_refused_by_its_own_path(tmp_path: Path) -> None:
    message = refusal(tmp_path, changed("profiles.gpu", "nowhere.yaml"))

    assert message == f"profiles.gpu: {tmp_path / 'nowhere.yaml'}: no such file"


def test_a_mistake_in_a_profile_of_its_own_is_placed_in_that_file(tmp_path: Path) -> None:
    path = tmp_path / "gpu.yaml"
    path.write_text(yaml.safe_dump({**PROFILE, "unit": 3}), encoding="utf-8")

    message = refusal(tmp_path, changed("profiles.gpu", "gpu.yaml"))

    assert message == f"profiles.gpu: {path}: unit: unknown key"


@pytest.mark.parametrize(
    ("place", "unknown"),
    [
        ("robot", "robot"),
        ("models.pick.slo", "models.pick.slo"),
        ("devices.gpu0.gathering", "devices.gpu0.gathering"),
        ("robots.0.rate", "robots[0].rate"),
        ("network.sigma", "network.sigma"),
        ("simulation.second", "simulation.second"),
        ("profiles.gpu.unit", "profiles.gpu.unit"),
        ("profiles.gpu.slowdown.prefixes", "profiles.gpu.slowdown.prefixes"),
        (
            "profiles.gpu.architectures.pi0.prefix",
            "profiles.gpu.architectures.pi0.prefix",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_its_path(tmp_path: Path, place: str, unknown: str) -> None:
    assert refusal(tmp_path, changed(place, 1)) == f"{unknown}: unknown key"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("models.pick.slo_ms", -1, "models.pick.slo_ms: expected `float` >= 0.001"),
        ("models.pick.slo_ms", float("inf"), "models.pick.slo_ms: expected `float` <= 10000000.0"),
        ("models.pick.slo_ms", float("nan"), "models.pick.slo_ms: expected `float` >= 0.001"),
        ("models.pick.slo_ms", "100", "models.pick.slo_ms: expected `float`, got `str`"),
        (
            "models.pick.prefix_sizes",
            [],
            "models.pick.prefix_sizes: expected `list` of length >= 1",
        ),
        ("robots.0.count", -1, "robots[0].count: expected `int` >= 0"),
        ("robots.0.count", 10**9, "robots[0].count: expected `int` <= 100000"),
        ("robots.0.count", 2.5, "robots[0].count: expected `int`, got `float`"),
        ("robots.0.rate_hz", 0, "robots[0].rate_hz: expected `float` > 0.0"),
        ("robots.0.threshold", 1.1, "robots[0].threshold: expected `float` <= 1.0"),
        ("robots.0.encoding", "png", "robots[0]: encoding must be 'raw' or 'jpeg', got 'png'"),
        ("robots.0.jitter_ms", 501, "robots[0]: jitter_ms must lie in 0 to one period, got 501.0"),
        ("network.kind", "carrier", "network.kind: invalid value 'carrier'"),
        ("network.up_ms", float("nan"), "network.up_ms: expected `float` >= 0.0"),
        (
            "network",
            {"kind": "log_normal", "burst_ms": [9, 5]},
            "network: burst_ms must be an ascending range, got (9.0, 5.0)",
        ),
        (
            "network",
            {"kind": "wifi7", "bandwidth_gbps": 1e-300},
            "network.bandwidth_gbps: expected `float` >= 1e-06",
        ),
        ("simulation.seconds", 0, "simulation.seconds: expected `float` >= 0.001"),
        ("simulation.seconds", 1e9, "simulation.seconds: expected `float` <= 1000000.0"),
        ("models.pick.prefix_sizes", [2, 1], "devices.gpu0: model 'pick': prefix_sizes must"),
        ("devices.gpu0.formation", "circle", "devices.gpu0: no formation 'circle'; known:"),
        ("devices.gpu0.discipline", "chess", "devices.gpu0: no discipline 'chess'; known:"),
        ("devices.gpu0.lateness", "never", "devices.gpu0: no lateness 'never'; known: yield, "),
        ("devices.gpu0.options", {"turbo": 1}, "devices.gpu0: formation 'lockstep': "),
        ("devices.gpu0.models", ["pick", "pick"], "devices.gpu0: models: 'pick' is named twice"),
        ("devices.gpu0.models", ["act"], "devices.gpu0: no model 'act' in models: pick"),
        ("devices.gpu0.profile", "tpu", "devices.gpu0: no profile 'tpu' in profiles: gpu"),
        ("robots.0.model", "act", "robots[0]: no device serves 'act'"),
        ("robots.0.device", "tpu", "robots 'pick': no device 'tpu'; known: gpu0"),
        ("robots.0.name", "", "robots[0].name: expected `str` of length >= 1"),
        (
            "models.pick.architecture",
            "act",
            "devices.gpu0: profile 'gpu': no architecture 'act'; it has: pi0",
        ),
        (
            "models.pick.denoise_sizes",
            [4],
            "devices.gpu0: profile 'gpu': no denoise_ms for batch size 4; sizes: 1, 2",
        ),
        (
            "profiles.gpu.units",
            5,
            "devices.gpu0: profile 'gpu': the last share must be the whole device, 5 units",
        ),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_its_place(
    tmp_path: Path, place: str, value: object, message: str
) -> None:
    assert refusal(tmp_path, changed(place, value)).startswith(message)


def test_a_device_whose_name_could_not_be_part_of_a_file_name_is_refused(tmp_path: Path) -> None:
    device = content()["devices"]["gpu0"]

    message = refusal(tmp_path, changed("devices", {"../gpu0": device}))

    assert message.startswith("the key devices.../gpu0: ")


@pytest.mark.parametrize("key", ["models", "devices"])
def test_a_part_no_fleet_can_do_without_is_missed(tmp_path: Path, key: str) -> None:
    what = content()
    del what[key]

    assert refusal(tmp_path, what) == f"{key}: missing"


def test_two_groups_given_one_name_are_refused(tmp_path: Path) -> None:
    group = {**content()["robots"][0], "name": "arms"}

    message = refusal(tmp_path, changed("robots", [group, group]))

    assert message == "two groups of robots are called 'arms'"


# Paced devices


def paced(**device: object) -> dict[str, Any]:
    return {
        "models": {"pi0": {"slo_ms": 156}},
        "devices": {"gpu": {"paced": "rtx-pro-6000", "models": ["pi0"], **device}},
        "robots": [{"model": "pi0", "count": 3, "rate_hz": 2}],
    }


def test_a_paced_device_is_simulated_with_the_modelled_times_of_its_gpu(tmp_path: Path) -> None:
    fleet = read(tmp_path, paced()).fleet()

    setup = fleet.devices["gpu"]
    assert setup.models == (model_for("pi0", slo_ms=156.0),)
    assert setup.profile.to_json() == profile_for("rtx-pro-6000", setup.models).to_json()
    assert fleet.robots[0].layout == 3, "the layout that holds every row"


def test_robots_of_a_paced_device_may_send_cheaper_rows(tmp_path: Path) -> None:
    what = paced()
    what["robots"][0]["layout"] = 1
    assert read(tmp_path, what).fleet().robots[0].layout == 1

    what["robots"][0]["layout"] = 4
    assert refusal(tmp_path, what) == "robots[0]: layout: expected 0..3, got 4"


def test_a_paced_device_has_no_other_profile(tmp_path: Path) -> None:
    what = paced(profile="gpu")

    assert refusal(tmp_path, what).startswith("devices.gpu: profile: a paced device has the times")


def test_a_gpu_that_nobody_knows_is_refused_with_those_that_are(tmp_path: Path) -> None:
    assert "devices.gpu: no device 'rtx-9000'; known: rtx-pro-6000" in refusal(
        tmp_path, paced(paced="rtx-9000")
    )


def test_a_device_that_is_only_served_cannot_be_simulated(tmp_path: Path) -> None:
    what = paced()
    what["devices"]["gpu"] = {"cpu": {}, "models": ["pi0"]}

    assert refusal(tmp_path, what).startswith("devices.gpu: profile: missing; a simulation")


EVERYTHING = {
    **PROFILE,
    "architectures": {
        "pi0": {
            "prefix_ms": {1: 10, 2: 16},
            "denoise_ms": {1: 20, 2: 24},
            "steps": 10,
            "transfer_ms": 3,
        }
    },
    "replicas": {"denoise_exponent": 0.1, "slowdown": {"prefix": 1.1, "denoise": 1.3}},
}


@pytest.mark.parametrize(
    ("formation", "options"),
    [
        ("monolithic", {"replicas": 2}),
        ("disaggregated", {"prefix_devices": 3}),
        ("step_admission", {}),
        ("step_admission", {"devices": 2}),
        ("step_admission", {"single_stage": True}),
    ],
)
def test_a_profile_that_states_everything_drives_every_formation(
    tmp_path: Path, formation: str, options: dict[str, Any]
) -> None:
    what = changed("profiles.gpu", EVERYTHING)
    what["devices"]["gpu0"] |= {"formation": formation, "options": options}

    fleet = read(tmp_path, what).fleet()
    run = simulate(fleet, duration=2 * SECOND)

    assert fleet.devices["gpu0"].models[0].steps == 10
    assert run.records
    assert all(record.is_met for record in run.records)


@pytest.mark.parametrize(
    ("formation", "options", "key"),
    [
        ("monolithic", {"replicas": 2}, "replicas"),
        ("disaggregated", {}, "architectures.pi0.transfer_ms"),
        ("step_admission", {}, "architectures.pi0.steps"),
    ],
)
def test_what_a_formation_needs_and_the_profile_lacks_is_named_when_the_file_is_read(
    tmp_path: Path, formation: str, options: dict[str, Any], key: str
) -> None:
    what = content()
    what["devices"]["gpu0"] |= {"formation": formation, "options": options}

    message = refusal(tmp_path, what)

    assert message.startswith(f"devices.gpu0: profile 'gpu': {key}: expected")
    assert message.endswith("it is missing")


def test_how_widely_the_launches_of_a_device_are_spread_is_part_of_what_is_simulated(
    tmp_path: Path,
) -> None:
    assert read(tmp_path, changed("devices.gpu0.spread", 0.03)).fleet().spreads == {"gpu0": 0.03}
    assert "devices" in refusal(tmp_path, changed("devices.gpu0.spread", 0.9))


def test_files_of_measured_profiles_are_told(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(changed("profiles.gpu", "times.json")), encoding="utf-8")

    assert FleetFile.read_unchecked(path).measured_paths == (tmp_path / "times.json",)
    assert read(tmp_path, content()).measured_paths == ()
