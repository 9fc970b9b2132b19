"""A number that no command can use is refused by its flag, before anything is started."""

from dataclasses import dataclass

import pytest

from takt.cli.main import main
from takt.cli.option_numbers import check_numbers
from takt.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Options:
    slo_ms: float = 200.0
    offset_ms: float = 0.0
    control_hz: float | None = None
    robots: int = -1
    name: str = "nan"


MOST = {"slo_ms": 1000.0, "control_hz": 100.0}


@pytest.mark.parametrize("options", [Options(), Options(offset_ms=-1e300, control_hz=100.0)])
def test_numbers_within_reason_pass(options: Options) -> None:
    check_numbers(options, MOST)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(slo_ms=0.0), "--slo-ms must lie above 0 and up to 1000, got 0"),
        (Options(slo_ms=1e300), "--slo-ms must lie above 0 and up to 1000, got 1e+300"),
        (Options(slo_ms=float("nan")), "--slo-ms must lie above 0 and up to 1000, got nan"),
        (Options(control_hz=-5.0), "--control-hz must lie above 0 and up to 100, got -5"),
        (Options(offset_ms=float("nan")), "--offset-ms must be a finite number, got nan"),
        (Options(offset_ms=float("-inf")), "--offset-ms must be a finite number, got -inf"),
    ],
)
def test_other_numbers_are_refused_by_their_flag(options: Options, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_numbers(options, MOST)

    assert str(refused.value) == message


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "1e300"])
@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (["serve", "--model", "echo"], "--slo-ms"),
        (["serve", "--model", "echo"], "--drain-seconds"),
        (["drive", "127.0.0.1:1"], "--seconds"),
        (["drive", "127.0.0.1:1"], "--slo-ms"),
        (["drive", "127.0.0.1:1"], "--rate-hz"),
        (["drive", "127.0.0.1:1"], "--control-hz"),
        (["demo", "--model", "echo"], "--seconds"),
    ],
)
def test_every_command_refuses_what_it_cannot_use(
    capsys: pytest.CaptureFixture[str], command: list[str], flag: str, value: str
) -> None:
    assert main([*command, f"{flag}={value}"]) == 1

    assert capsys.readouterr().err.startswith(f"takt: {flag} must lie above 0 and up to ")


@pytest.mark.parametrize("flag", ["--network-allowance-ms", "--latency-ms", "--prefix-share"])
def test_serve_refuses_what_is_no_number(capsys: pytest.CaptureFixture[str], flag: str) -> None:
    assert main(["serve", "--model", "echo", f"{flag}=nan"]) == 1

    assert capsys.readouterr().err == f"takt: {flag} must be a finite number, got nan\n"


def test_the_demo_refuses_no_robots_before_it_starts_a_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--model", "echo", "--robots", "0"]) == 1

    out, err = capsys.readouterr()
    assert "starting" not in out
    assert err.startswith("takt: --robots '0': expected N")
