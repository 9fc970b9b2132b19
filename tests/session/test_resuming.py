import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.session.features import RobotFeatures
from takt.session.resuming import CannotResumeError, OnlyModel, SessionRecord, resume

ARM = RobotFeatures(state_dim=2, state_names=("a.pos", "b.pos"))
HAND = RobotFeatures(state_dim=1, state_names=("c.pos",))
KEYS = ("a.pos", "b.pos", "task")


def record(
    model: str = "fold",
    *,
    address: str = "10.0.0.7",
    features: RobotFeatures = ARM,
    last_timestep: int = 0,
    actions: int = 50,
) -> SessionRecord:
    return SessionRecord(
        address=address,
        model=model,
        features=features,
        actions_per_chunk=actions,
        spelling="lerobot.async_inference.helpers",
        last_timestep=last_timestep,
    )


def only(model: str = "fold") -> OnlyModel:
    return OnlyModel(name=model, features=ARM, actions_per_chunk=16, spelling="s")


def resumed(records: list[SessionRecord], only_model: OnlyModel | None = None) -> str:
    candidates = {str(number): record for number, record in enumerate(records)}
    found = resume(candidates, address="10.0.0.7", timestep=100, keys=KEYS, only_model=only_model)
    return found.model


def test_a_single_candidate_is_gone_on_with() -> None:
    found = resume({"k": record()}, address="10.0.0.9", timestep=3, keys=KEYS, only_model=None)

    assert (found.model, found.features, found.actions_per_chunk) == ("fold", ARM, 50)
    assert found.used == "k"


def test_candidates_that_agree_are_as_good_as_one() -> None:
    found = resume(
        {"old": record(actions=50), "new": record(actions=20)},
        address="10.0.0.7",
        timestep=3,
        keys=KEYS,
        only_model=None,
    )

    assert (found.model, found.actions_per_chunk, found.used) == ("fold", 20, "old")


def test_candidates_that_disagree_are_refused() -> None:
    with pytest.raises(CannotResumeError, match=r"differ.*fold, pour.*SendPolicyInstructions"):
        resumed([record("fold"), record("pour")])


def test_equal_models_with_other_features_disagree() -> None:
    other = RobotFeatures(state_dim=2, state_names=("b.pos", "a.pos"))

    with pytest.raises(CannotResumeError):
        resumed([record(), record(features=other)])


def test_an_address_narrows_the_candidates() -> None:
    assert resumed([record("pour", address="10.0.0.8"), record("fold")]) == "fold"


def test_an_address_nobody_had_narrows_nothing() -> None:
    assert resumed([record("pour", address="10.0.0.8")]) == "pour"


def test_a_robot_never_turns_its_timestep_back() -> None:
    assert resumed([record("pour", last_timestep=500), record("fold", last_timestep=90)]) == "fold"


def test_a_candidate_that_sent_other_keys_is_none() -> None:
    assert resumed([record("grasp", features=HAND), record("fold")]) == "fold"


def test_without_candidates_the_only_model_serves() -> None:
    found = resume({}, address="", timestep=0, keys=KEYS, only_model=only())

    assert (found.model, found.actions_per_chunk, found.used) == ("fold", 16, None)


def test_where_candidates_disagree_the_only_model_serves() -> None:
    assert resumed([record("fold"), record("gone")], only("fold")) == "fold"


def test_without_anything_the_robot_is_told_to_begin_again() -> None:
    with pytest.raises(CannotResumeError, match="restart the robot client"):
        resumed([record("grasp", features=HAND)])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["fold", "pour"]),
            st.sampled_from(["10.0.0.7", "10.0.0.8"]),
            st.integers(0, 200),
        ),
        max_size=6,
    )
)
def test_what_is_gone_on_with_is_never_a_guess(found: list[tuple[str, str, int]]) -> None:
    records = [record(m, address=a, last_timestep=t) for m, a, t in found]
    near = [r for r in records if r.address == "10.0.0.7"] or records
    able = [r for r in near if r.last_timestep <= 100] or near

    try:
        model = resumed(records)
    except CannotResumeError:
        assert len({r.model for r in able}) != 1
    else:
        assert {r.model for r in able} == {model}
