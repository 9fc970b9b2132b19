"""Who got whose chunk is counted, and a server that died is a row."""

from typing import Any

from benchmarks.truth._stock_words import answered_share, carried, sections
from benchmarks.truth.stock_servers import StockServers, judged, populations

BOTH = {"openpi": "python", "lerobot": "python"}


def turn(server: str, robots: int, within: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "server": server,
        "robots": robots,
        "round": 1,
        "issued": 100,
        "answered": 100,
        "within": within,
        "foreign": 0,
        "p50": 20.0,
        "p99": 80.0,
        "in_time": robots,
        "correct": robots,
        "mixed_up": 0,
        "silent": 0,
        "cores": 0.5,
        "client_cores": 0.1,
        **more,
    }


def test_a_chunk_of_another_robot_is_no_answer() -> None:
    said = [
        {"issued": 2, "answers": [[20.0, 0], [30.0, 0]]},
        {"issued": 2, "answers": [[20.0, 0], [40.0, 1]]},
        {"issued": 2, "answers": []},
    ]

    seen = judged(said, is_numbered=True)

    assert (seen["issued"], seen["within"], seen["foreign"]) == (6, 3, 1)
    assert (seen["correct"], seen["mixed_up"], seen["silent"]) == (1, 1, 1)
    assert seen["in_time"] == 1


def test_a_late_chunk_is_the_robots_own_and_not_in_time() -> None:
    seen = judged([{"issued": 1, "answers": [[400.0, True]]}], is_numbered=False)

    assert (seen["correct"], seen["within"], seen["in_time"]) == (1, 0, 0)


def test_what_was_asked_and_not_answered_is_a_miss() -> None:
    seen = judged([{"issued": 50, "answers": [[10.0, True]] * 25}], is_numbered=False)

    assert answered_share(seen) == 0.5
    assert seen["in_time"] == 0


def test_a_dead_server_answers_nothing_and_says_why() -> None:
    dead = {"server": "openpi", "robots": 4, "round": 1, "dead": "it has ended"}
    found = {"a": dead, "b": turn("takt openpi", 4, 100)}

    assert answered_share(dead) == 0
    text = sections(found, [])
    row = next(line for line in text.splitlines() if "it died (it has ended)" in line)
    heads = next(line for line in text.splitlines() if line.startswith("| robots"))
    assert row.count("|") == heads.count("|")


def test_a_server_carries_the_populations_below_its_first_failure() -> None:
    turns = [turn("openpi", 1, 100), turn("openpi", 2, 99), turn("openpi", 4, 60)]

    assert carried([*turns, turn("openpi", 8, 100)], "openpi") == 2


def test_what_no_interpreter_was_named_for_is_not_measured() -> None:
    part = StockServers(interpreters={"openpi": None, "lerobot": None})

    assert part.cells(False, {}) == []
    assert "LeRobot 0.4.4 policy server: not measured" in part.section({})


def test_only_the_servers_that_can_run_are_measured() -> None:
    part = StockServers(interpreters={"openpi": "python"})

    cells = part.cells(True, {"knee": {"knee": 8}})[1:]

    assert {cell.settings["server"] for cell in cells} == {"openpi", "takt openpi"}


def test_servers_take_turns_at_each_population() -> None:
    part = StockServers(interpreters=BOTH)

    cells = part.cells(False, {"knee": {"knee": 8}})[1:9]

    assert [cell.settings["robots"] for cell in cells] == [1] * 4 + [6] * 4
    assert populations(8) == [1, 6, 8, 10]


def test_a_stock_server_climbs_until_it_fails() -> None:
    part = StockServers(interpreters=BOTH)
    found: dict[str, dict[str, Any]] = {"knee": {"knee": 40}}
    climbed: list[int] = []

    while steps := [c for c in part.cells(False, found) if is_step(c.key) and c.key not in found]:
        robots = steps[0].settings["robots"]
        climbed.append(robots)
        found[steps[0].key] = turn("openpi", robots, 100 if robots < 8 else 50)

    assert climbed == [2, 4, 8]


def is_step(key: str) -> bool:
    return key in {f"openpi at {robots}, round 1" for robots in (2, 4, 8, 16)}


def test_the_section_says_how_many_more_and_who_was_mixed_up() -> None:
    found = {
        "a": turn("lerobot", 1, 100),
        "b": turn("lerobot", 4, 10, mixed_up=3),
        "c": turn("takt lerobot", 1, 100),
        "d": turn("takt lerobot", 4, 100),
    }

    text = sections(found, ["openpi"])

    assert "carries one robot at 98% and Takt 4 robots, 4.0 times as many" in text
    assert "From 4 robots on LeRobot 0.4.4 policy server gave robots the chunks of others" in text
    assert "openpi-server 0.1.0: not measured; no interpreter" in text


def test_a_chunk_mixed_up_behind_takt_breaks_the_claim() -> None:
    found = {"a": turn("takt openpi", 4, 100, foreign=1), "b": turn("lerobot", 4, 1, foreign=9)}

    (claim,) = StockServers().claims(found)

    assert not claim.holds
    assert "1 of 100" in claim.text
