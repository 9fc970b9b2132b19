import numpy as np

from takt.cli.driving.time_split import PARTS, split_of
from takt.client.answer import Answer
from takt.units import Nanos, ms

SERVER = ms(45)
ACTIONS = np.zeros((2, 2), np.float32)
STAGES: dict[str, Nanos] = {
    "decode": ms(1),
    "wait": ms(2),
    "preprocess": ms(3),
    "link": ms(4),
    "queue": ms(5),
    "prefix": ms(6),
    "between": ms(7),
    "denoise": ms(8),
    "finish": ms(9),
}


def answer(server: Nanos | None = SERVER, stages: dict[str, Nanos] | None = None) -> Answer:
    return Answer(actions=ACTIONS, round_trip=ms(50), server=server, stages=stages or {})


def test_the_parts_add_up_to_the_latency() -> None:
    split = split_of(answer(stages=STAGES), latency=ms(70), held=ms(12))

    assert sum(split.values()) == ms(70)
    assert [*split] == [part for part in PARTS if part in split]


def test_the_stages_of_the_server_are_gathered_into_parts() -> None:
    split = split_of(answer(stages=STAGES), latency=ms(70), held=ms(12))

    assert split == {
        "held": ms(12),
        "sender": ms(8),
        "network": ms(5),
        "decode": ms(4),
        "queue": ms(11),
        "prefix": ms(6),
        "wait": ms(7),
        "denoise": ms(8),
        "reply": ms(9),
    }


def test_a_server_that_tells_no_stages_is_one_part() -> None:
    split = split_of(answer(), latency=ms(50), held=0)

    assert split == {"held": 0, "sender": 0, "network": ms(5), "server": ms(45)}


def test_a_server_that_tells_nothing_leaves_the_round_trip() -> None:
    split = split_of(answer(server=None), latency=ms(51), held=0)

    assert split == {"held": 0, "sender": ms(1), "round trip": ms(50)}
