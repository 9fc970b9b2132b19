import json

import pytest

from takt.errors import ConfigError
from takt.policies.catalog import open_policy
from takt.schema.plain import observation_spec_from_plain, spec_from_plain, to_plain

SPEC = open_policy("mini").spec


@pytest.mark.parametrize("policy", ["echo", "mini"])
def test_a_spec_survives_json(policy: str) -> None:
    spec = open_policy(policy).spec

    assert spec_from_plain(json.loads(json.dumps(to_plain(spec)))) == spec


def test_whole_numbers_are_read_where_a_float_is_wanted() -> None:
    plain = to_plain(SPEC)
    plain["action"]["control_hz"] = 16

    assert spec_from_plain(plain).action.control_hz == 16.0


def test_an_observation_spec_is_read_alone_or_out_of_a_policys_card() -> None:
    alone = observation_spec_from_plain(to_plain(SPEC.observation))

    assert alone == observation_spec_from_plain(to_plain(SPEC)) == SPEC.observation


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("action", "horison"), 3, r"spec\.action\.horison: unknown key"),
        (("action", "horizon"), "16", r"spec\.action\.horizon: expected int, got str"),
        (("action", "horizon"), True, "expected int, got bool"),
        (("observation", "cameras"), "base", r"cameras: expected a list, got str"),
        (("observation", "cameras"), [3], r"cameras\[0\]: expected a mapping, got int"),
        (("observation", "prompt"), 1, "expected bool, got int"),
        (("prefix_sizes",), [1.0], r"prefix_sizes\[0\]: expected int, got float"),
        (("holds",), [1] * 9000, "at most 8192"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_path(
    path: tuple[str, ...], value: object, said: str
) -> None:
    plain = to_plain(SPEC)
    place = plain
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value

    with pytest.raises(ConfigError, match=said):
        spec_from_plain(plain)


def test_a_missing_entry_is_refused_with_its_path() -> None:
    plain = to_plain(SPEC)
    del plain["action"]["horizon"]

    with pytest.raises(ConfigError, match=r"spec\.action\.horizon: this key is missing"):
        spec_from_plain(plain)


def test_what_is_no_mapping_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a mapping, got list"):
        spec_from_plain([])
