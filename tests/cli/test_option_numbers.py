"""A number that no command can use is refused by its flag, before anything is started."""

from dataclasses import dataclass

import pytest

from takt.cli.main import main
from takt.cli.option_numbers import check_numbers, naming_flags
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


PACED = ["--paced", "h100", "--model", "pi0"]
EVAL = ["eval", "--env", "metaworld:door-open-v3", "--in-process"]
ROBOT = ["robot", "--env", "metaworld:door-open-v3", "--server", "h:1"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["policy", "verify", ".", "--tolerance=0"],
        ["policy", "verify", ".", "--chunk-tolerance=nan"],
        ["policy", "show", "echo", "--tokenizer=x"],
        [*EVAL, "--max-steps=0"],
        [*EVAL, "--execute=0"],
        [*EVAL, "--episodes=0"],
        [*EVAL, "--trace=/nope/x"],
        [*EVAL, "--strip=/nope/x.png"],
        [*ROBOT, "--log=/nope/x"],
        [*ROBOT, "--trace=/nope/x"],
        [*ROBOT, "--strip=/nope/x.png"],
        [*ROBOT, "--control-hz=0"],
        [*ROBOT, "--g=2"],
        ["models", "load", "echo", "--slo-ms=0"],
        ["models", "load", "echo", "--slo-ms=nan"],
        ["profile", *PACED, "--relative-error=0"],
        ["profile", *PACED, "--relative-error=nan"],
        ["profile", *PACED, "--most-runs=0"],
        ["profile", *PACED, "--most-seconds=0"],
        ["profile", *PACED, "--layout=pi0=9"],
        ["profile", "--model", "echo", "--paced-seed=1"],
        ["profile", "--model", "echo", "--prefix-cores=9999"],
        ["plan", "--hardware", "h100", "--model", "pi0", "--interference=-1"],
        ["plan", "--hardware", "h100", "--model", "pi0", "--seeds=1"],
        ["drive", "h:1", "--threshold=2"],
        ["bench", "--server", "h:1", "--closed-loop", "--threshold=2"],
        ["bench", "--server", "h:1", "--csv=/nope/x"],
        ["serve", "--model", "echo", "--paced-seed=1"],
        ["serve", "--model", "echo", "--network-allowance-ms=-5"],
        ["serve", "--model", "echo", "--network-allowance-ms=1e12"],
        ["serve", "--model", "echo", "--openpi=65536"],
        ["serve", "--model", "echo", "--openpi=-1"],
        ["serve", "--model", "echo", "--lerobot=65536"],
        ["serve", "--model", "echo", "--horizon=0"],
        ["serve", "--model", "echo", "--latency-ms=-1"],
        ["serve", "--model", "echo", "--latency-per-row-ms=-1"],
        ["serve", "--model", "echo", "--prefix-share=2"],
        ["serve", "--model", "echo", "--prefix-cores=9999"],
        ["serve", "--model", "echo", "--denoise-cores=-1"],
        ["serve", "--model", "echo", "--reevaluate-seconds=-1"],
        ["export", ".", "--batch-sizes=0"],
    ],
    ids=lambda arguments: " ".join((arguments[0], arguments[-1])),
)
def test_what_is_wrong_with_an_option_begins_with_its_flag(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1

    flag = arguments[-1].partition("=")[0]
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith((f"takt: {flag} ", f"takt: {flag}: "))


def test_an_error_of_the_code_that_an_option_is_made_for_is_told_by_its_flag() -> None:
    with pytest.raises(ConfigError) as refused, naming_flags("max_steps", "seed"):
        raise ConfigError("max_steps must be at least 1, got 0")

    assert str(refused.value) == "--max-steps must be at least 1, got 0"


@pytest.mark.parametrize("message", ["execute must be at least 1", "nothing to do", ""])
def test_an_error_that_names_no_such_option_is_left_as_it_is(message: str) -> None:
    with pytest.raises(ConfigError) as refused, naming_flags("max_steps"):
        raise ConfigError(message)

    assert str(refused.value) == message
