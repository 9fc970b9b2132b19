"""``takt bench`` without processes: what is refused, what is asked of them, what is printed."""

import csv
import json
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.benching.made import GONE, epoch, run

from takt.cli.benching.sender import Epoch, Progress, Sent
from takt.cli.drive import Drive
from takt.cli.main import main
from takt.units import Nanos, ms, seconds

ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
GOOD, BAD = (5,) * 60, (5,) * 30 + (80,) * 30


class FakeSenders:
    """Processes whose robots are answered after as many milliseconds as the script says.

    A signal in the script comes while the epoch runs.
    """

    def __init__(self) -> None:
        self.epochs: list[tuple[int, ...] | signal.Signals] = []
        self.orders: list[Epoch] = []
        self.drives: list[tuple[Drive, int]] = []

    @contextmanager
    def open(self, drive: Drive, processes: int) -> Generator["FakeSenders", None, None]:
        self.drives.append((drive, processes))
        yield self

    def run(self, order: Epoch, tell: Callable[[Progress], None]) -> list[Sent]:
        self.orders.append(order)
        tell(Progress(1, 1, 1))
        found = self.epochs.pop(0) if self.epochs else GOOD
        if isinstance(found, signal.Signals):
            signal.raise_signal(found)
            pytest.fail("it did not end the epoch")
        return [*epoch(run("robot-1", *found)).parts]


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> FakeSenders:
    made = FakeSenders()
    monkeypatch.setattr("takt.cli.bench.senders", made.open)
    return made


def bench(*options: str) -> int:
    return main(["bench", "--server", "somewhere:1", *options])


def measured(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert bench("--json", *options) == 0
    return json.loads(capsys.readouterr().out)


def test_a_clear_verdict_ends_the_run(
    fakes: FakeSenders, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes.epochs = [BAD] * 5

    found = measured(capsys)

    assert (found["holds"], len(found["epochs"]), found["stopped_early"]) == (False, 3, True)


def test_one_robot_on_time_is_asked_in_all_epochs(
    fakes: FakeSenders, capsys: pytest.CaptureFixture[str]
) -> None:
    found = measured(capsys)

    assert (found["holds"], len(found["epochs"]), found["stopped_early"]) == (True, 5, False)


def test_a_verdict_in_doubt_takes_all_epochs(
    fakes: FakeSenders, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes.epochs = [GOOD, BAD, GOOD, BAD, GOOD, BAD]

    found = measured(capsys, "--epochs", "6")

    assert (found["holds"], len(found["epochs"]), found["stopped_early"]) == (False, 6, False)


def test_every_epoch_has_other_phases(fakes: FakeSenders) -> None:
    assert bench("--seed", "7", "--seconds", "3", "--warm-up-seconds", "0.5") == 0

    assert fakes.orders[0] == Epoch(7, ms(500), seconds(3))
    assert [order.seed for order in fakes.orders] == [7, 8, 9, 10, 11]


def test_robots_behave_as_told(fakes: FakeSenders) -> None:
    options = ("--robots", "mini=40", "--robots", "8", "--closed-loop", "--threshold", "0.3")

    assert bench(*options, "--processes", "3", "--slo-ms", "90", "--deadline", "slo") == 0

    ((drive, processes),) = fakes.drives
    assert (drive.address, drive.robots, processes) == ("somewhere:1", ("mini=40", "8"), 3)
    assert (drive.threshold, drive.slo_ms, drive.deadline) == (0.3, 90.0, "slo")


def test_no_process_is_without_a_robot(fakes: FakeSenders) -> None:
    assert bench("--robots", "2", "--processes", "5") == 0

    assert fakes.drives[0][1] == 2


def test_an_open_loop_is_the_default(fakes: FakeSenders) -> None:
    assert bench() == 0

    assert (fakes.drives[0][0].threshold, fakes.drives[0][0].rate_hz) == (None, 2.0)


def test_requests_and_a_picture_are_written(
    fakes: FakeSenders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, plot = tmp_path / "requests.csv", tmp_path / "bench.svg"

    assert bench("--csv", str(table), "--plot", str(plot)) == 0

    with table.open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 300
    assert plot.read_bytes().startswith(b"<?xml")
    assert "1 robot holds 98.00%" in capsys.readouterr().out


def test_a_server_that_is_gone_ends_the_run_after_that_epoch_with_its_figures(
    fakes: FakeSenders, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fakes.epochs = [GOOD, (5,) * 30 + (GONE,) * 30]
    table = tmp_path / "requests.csv"

    assert bench("--json", "--csv", str(table)) == 1

    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["issued"], found["outcomes"]["served"], found["attainment"]) == (120, 90, 0.75)
    assert (len(found["epochs"]), found["stopped_early"], found["broken_off"]) == (2, False, False)
    assert "went away 3.0 s into epoch 2 for 1 of 1 robots and did not come back by the end" in err
    assert err.endswith("\ntakt: the server was gone when the run ended\n")
    with table.open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 120


def test_a_server_that_comes_back_is_measured_on_and_that_it_was_away_is_said(
    fakes: FakeSenders, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes.epochs = [GOOD, (5,) * 20 + (GONE,) * 20 + (5,) * 20]

    assert bench() == 0

    out, err = capsys.readouterr()
    assert len(fakes.orders) == 5
    assert "went away 2.0 s into epoch 2 for 1 of 1 robots and came back" in out
    assert err == ""


@pytest.mark.usefixtures("signals_are_heeded")
@pytest.mark.parametrize("number", ENDING)
def test_what_was_measured_before_a_signal_is_said_and_written(
    fakes: FakeSenders,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    fakes.epochs = [GOOD, BAD, number]
    table = tmp_path / "requests.csv"

    assert bench("--json", "--csv", str(table)) == 128 + number

    found = json.loads(capsys.readouterr().out)
    assert (len(found["epochs"]), found["broken_off"], found["stopped_early"]) == (2, True, False)
    with table.open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 120


@pytest.mark.usefixtures("signals_are_heeded")
@pytest.mark.parametrize("number", ENDING)
def test_a_signal_in_the_first_epoch_says_nothing(
    fakes: FakeSenders, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    fakes.epochs = [number]

    assert bench("--json") == 128 + number

    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give either --server ADDRESS or --start OPTIONS"),
        (("--server", "a", "--start", "x"), "give either --server ADDRESS or --start OPTIONS"),
        (("--server", "a", "--target", "1"), "--target must lie between 0 and 1, got 1"),
        (("--server", "a", "--epochs", "0"), "--epochs must lie in 1 to 200, got 0"),
        (("--server", "a", "--processes", "0"), "--processes must lie in 1 to 64, got 0"),
        (("--server", "a", "--seconds", "inf"), "--seconds must lie above 0"),
        (("--server", "a", "--warm-up-seconds", "-1"), "--warm-up-seconds must be at least 0"),
        (("--server", "a", "--robots", "x"), "--robots 'x': expected N or MODEL=N"),
        (("--server", "a", "--rate-hz", "0"), "--rate-hz must lie above 0"),
        (("--server", "a", "--csv", "no/x.csv"), "--csv no/x.csv: no folder no"),
        (("--server", "a", "--plot", "x.pdf"), "--plot x.pdf: a plot ends in .png or .svg"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    options: tuple[str, ...],
    said: str,
    fakes: FakeSenders,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", *options]) == 1

    assert said in capsys.readouterr().err
    assert fakes.drives == []


@pytest.mark.usefixtures("signals_are_heeded")
@pytest.mark.parametrize("number", ENDING)
def test_a_signal_once_all_is_measured_costs_nothing_that_was(
    fakes: FakeSenders,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    class Server:
        def wait_until_ready(self, timeout: Nanos) -> str:
            return "somewhere:1"

    @contextmanager
    def serving(options: Sequence[str]) -> Generator[Server, None, None]:
        yield Server()
        signal.raise_signal(number)  # it takes a while to stop

    monkeypatch.setattr("takt.cli.bench.serving", serving)

    assert main(["bench", "--start=--model echo", "--json"]) == 128 + number

    found = json.loads(capsys.readouterr().out)
    assert (len(found["epochs"]), found["broken_off"]) == (5, False)
