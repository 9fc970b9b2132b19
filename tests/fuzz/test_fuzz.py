from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fuzz.campaign import Campaign
from tests.fuzz.mutation import Mutator
from tests.fuzz.targets import TARGETS, Target

from takt.errors import WireError


def many(count: int) -> Callable[[int], bool]:
    return lambda inputs: inputs >= count


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_decoder_decodes_or_refuses_whatever_it_is_fed(name: str, tmp_path: Path) -> None:
    campaign = Campaign(target=TARGETS[name], seed=7, save_to=tmp_path)

    campaign.run(until=many(400))

    assert campaign.failures == []
    assert campaign.refused.total() + campaign.decoded == 400
    assert campaign.refused.total() > 0


@pytest.mark.parametrize("name", TARGETS)
def test_an_undamaged_message_is_there_to_begin_with(name: str) -> None:
    target = TARGETS[name]
    decoded = 0
    for data in target.corpus():
        try:
            target.decode(data)
        except target.refusals:
            continue
        decoded += 1
    assert decoded > 0


def test_equal_seeds_make_equal_inputs() -> None:
    corpus = [b"one message", b"another, which is longer"]
    first, second, other = (Mutator(corpus, [b"word"], seed) for seed in (1, 1, 2))

    inputs = [first.next() for _ in range(50)]

    assert inputs == [second.next() for _ in range(50)]
    assert inputs != [other.next() for _ in range(50)]
    assert len(set(inputs)) > 40


def refusing(data: bytes) -> object:
    raise WireError("expected nothing, got something")


def crashing(data: bytes) -> object:
    raise KeyError(data)


def test_what_escapes_is_a_failure_whose_input_is_saved(tmp_path: Path) -> None:
    campaign = Campaign(
        target=Target(decode=crashing, corpus=lambda: [b"message"]), seed=3, save_to=tmp_path
    )

    campaign.run(until=many(2))

    assert len(campaign.failures) == 2
    assert all("raised KeyError" in failure for failure in campaign.failures)
    assert {path.name for path in tmp_path.iterdir()} == {"seed3-input1.bin", "seed3-input2.bin"}


def test_refusals_are_counted_by_class() -> None:
    campaign = Campaign(target=Target(decode=refusing, corpus=lambda: [b"message"]), seed=3)

    campaign.run(until=many(9))

    assert campaign.report()["refused"] == {"WireError": 9}
    assert campaign.report()["failures"] == []
