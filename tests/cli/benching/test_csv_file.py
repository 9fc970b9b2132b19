import csv
from pathlib import Path

import pytest
from tests.cli.benching.made import epoch, run
from tests.full_disk import FULL, full_disk

from takt.cli.benching.csv_file import COLUMNS, write_csv
from takt.errors import ConfigError


def test_every_request_is_a_line_with_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    epochs = [epoch(run("a", 7, None, 80), seed=3), epoch(run("a", 5), run("b", 6), seed=4)]

    write_csv(epochs, path)

    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [(row["epoch"], row["seed"], row["robot"]) for row in rows] == [
        ("1", "3", "a"),
        ("1", "3", "a"),
        ("1", "3", "a"),
        ("2", "4", "a"),
        ("2", "4", "b"),
    ]
    assert [(row["sent_ms"], row["latency_ms"], row["met"]) for row in rows[:3]] == [
        ("0.0", "7.0", "1"),
        ("100.0", "", "0"),
        ("200.0", "80.0", "0"),
    ]
    assert [row["sender_ms"] for row in rows[:3]] == ["2.0", "", "75.0"]
    assert [row["outcome"] for row in rows[:3]] == ["served", "expired", "served"]


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--csv"):
        write_csv([], tmp_path / "nowhere" / "requests.csv")


def test_a_full_disk_leaves_the_table_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    epochs = [epoch(run("a", 7, None, 80))]
    write_csv(epochs, path)
    good = path.read_bytes()

    with full_disk(), pytest.raises(ConfigError, match=rf"--csv .*requests\.csv: {FULL}"):
        write_csv(epochs, path)

    assert path.read_bytes() == good
    assert [*tmp_path.iterdir()] == [path]
