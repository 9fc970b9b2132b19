import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import ConfigError, ObservationError
from takt.policies.mini.words import UNKNOWN, WordTokenizer

TOKENIZER = WordTokenizer(("drawer", "open", "the"), num_words=5)


def test_words_become_numbers_and_the_rest_is_padding() -> None:
    assert TOKENIZER.encode("Open the DRAWER!").tolist() == [3, 4, 2, 0, 0]


def test_a_word_it_does_not_know_keeps_its_place() -> None:
    assert TOKENIZER.encode("open the fridge").tolist() == [3, 4, UNKNOWN, 0, 0]


@pytest.mark.parametrize("text", ["", "...", "ouvre la porte"])
def test_an_instruction_without_a_known_word_is_refused_under_the_clients_key(text: str) -> None:
    with pytest.raises(ObservationError, match="task: expected words this policy knows"):
        TOKENIZER.encode(text, "task")


def test_no_word_is_dropped_in_silence() -> None:
    with pytest.raises(ObservationError, match="at most 5 words, got 6 words"):
        TOKENIZER.encode("open the drawer open the drawer")


@pytest.mark.parametrize("vocabulary", [("open", "open"), ("Open",), ("open the",), ("",)])
def test_a_vocabulary_has_different_lower_case_words(vocabulary: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="vocabulary"):
        WordTokenizer(vocabulary, num_words=5)


@pytest.mark.slow
@given(st.text(max_size=60))
def test_every_text_is_encoded_within_the_table_or_refused(text: str) -> None:
    try:
        numbers = TOKENIZER.encode(text)
    except ObservationError:
        return
    assert numbers.shape == (5,)
    assert numbers.max() < TOKENIZER.size
