import subprocess
import sys
from pathlib import Path

import pytest

from takt.errors import ConfigError
from takt.policies.catalog import KNOWN_POLICIES, open_policy
from takt.policies.mini.checkpoint import SHIPPED

GOLDEN = Path(__file__).parents[1] / "golden" / "policies"


@pytest.mark.parametrize("policy", KNOWN_POLICIES)
def test_every_known_policy_opens_under_its_own_or_another_name(policy: str) -> None:
    assert open_policy(policy).spec.name == policy
    assert open_policy(policy, name="arm").spec.name == "arm"


def test_an_unknown_policy_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match="no policy 'pi9'; known: echo, mini"):
        open_policy("pi9")


def test_a_directory_opens_by_its_card() -> None:
    parts = open_policy(str(SHIPPED))

    assert parts.spec.name == SHIPPED.name
    assert parts.spec.architecture == "mini"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "not a checkpoint: it has neither .*policy.json nor .*config.json"),
        ("{", "not JSON"),
        ("[]", "mapping"),
        ('{"family": "x"}', "'x'"),
    ],
)
def test_a_directory_without_a_card_we_know_is_refused(
    tmp_path: Path, text: str | None, said: str
) -> None:
    if text is not None:
        (tmp_path / "policy.json").write_text(text)

    with pytest.raises(ConfigError, match=said):
        open_policy(str(tmp_path))


@pytest.mark.parametrize(
    ("policy", "takes"),
    [
        ("echo", False),
        ("mini", False),
        ("paced:pi0", False),
        (str(GOLDEN / "pi0_relative" / "checkpoint"), True),
        (str(GOLDEN / "smolvla" / "checkpoint"), True),
    ],
)
def test_checkpoints_of_lerobot_take_leftovers_and_no_others(policy: str, takes: bool) -> None:
    assert open_policy(policy).takes_leftovers is takes


def test_an_option_the_policy_has_not_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"latency: unknown key; known: horizon"):
        open_policy("echo", options={"latency": 3})
    with pytest.raises(ConfigError, match=r"latency_ms: unknown key; known: at_least_ms"):
        open_policy("mini", options={"latency_ms": 3})


@pytest.mark.slow
def test_a_gateway_prepares_rows_without_a_network_engine() -> None:
    code = (
        "import sys; from takt.policies.catalog import open_policy;"
        "open_policy('mini').preprocessor(); open_policy('mini').decoder();"
        "sys.exit(bool({'openvino', 'torch'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
