from pathlib import Path

import pytest
from tests.client.episodes import write_episode

from takt.cli.episode_plot import plot_episode
from takt.client.episode import read_episode
from takt.errors import ConfigError


@pytest.mark.slow
def test_a_plot_names_the_parts_of_latency_the_states_and_the_splices(tmp_path: Path) -> None:
    write_episode(tmp_path / "e.jsonl")

    plot_episode(read_episode(tmp_path / "e.jsonl"), tmp_path / "e.svg")

    drawn = (tmp_path / "e.svg").read_text()
    for label in ("actions queued", "degraded", "hold", "network", "server", "Splices"):
        assert f"<!-- {label}" in drawn


@pytest.mark.slow
def test_an_episode_without_an_answer_can_be_drawn(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"event": "episode", "at_ms": 0, "format": 1}\n')

    plot_episode(read_episode(tmp_path / "e.jsonl"), tmp_path / "e.png")

    assert (tmp_path / "e.png").stat().st_size > 1000


def test_a_plot_ends_in_a_suffix_we_can_write(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"event": "episode", "at_ms": 0, "format": 1}\n')

    with pytest.raises(ConfigError, match="ends in"):
        plot_episode(read_episode(tmp_path / "e.jsonl"), tmp_path / "e.gif")
