"""The file of a measured profile: what is written is read, what is torn is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.full_disk import FULL, full_disk

from takt.core.model import Model
from takt.core.profile import Profile, Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.hardware import measured as module
from takt.hardware.measured import MeasuredProfile, ProfileHeader
from takt.units import ms

MODEL = Model(name="fold", architecture="mini", slo=ms(80), prefix_sizes=(1, 2), denoise_sizes=(4,))
ONE, TWO = (Work("mini", Stage.PREFIX, 0, size, 2) for size in (1, 2))
DENOISE = Work("mini", Stage.DENOISE, 0, 4, 2)
PROFILE = MeasuredProfile(
    header=ProfileHeader(
        device="a CPU",
        engine="openvino 1",
        versions={"takt": "1"},
        precision="f32",
        relative_error=0.03,
        confidence=0.95,
        num_pairs_measured=1,
        num_pairs_interpolated=1,
        interpolation="somehow",
    ),
    models=(MODEL,),
    profile=Profile(
        units=2,
        shares=(2,),
        solo={ONE: ms(4), TWO: ms(7), DENOISE: ms(9)},
        slowdown={
            (ONE, DENOISE): 1.5,
            (DENOISE, ONE): 1.0,
            (TWO, DENOISE): 2.0,
            (DENOISE, TWO): 1.25,
        },
    ),
    measured_pairs=frozenset({(TWO, DENOISE)}),
)


def changed(**keys: object) -> bytes:
    return json.dumps({**json.loads(PROFILE.to_json()), **keys}).encode()


def test_a_profile_is_read_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    PROFILE.write(path)

    again = MeasuredProfile.read(path)

    assert again.header == PROFILE.header
    assert again.models == PROFILE.models
    assert again.measured_pairs == PROFILE.measured_pairs
    assert again.to_json() == PROFILE.to_json()


def test_a_file_bears_no_date_so_that_equal_measurements_are_equal_files() -> None:
    assert {*json.loads(PROFILE.to_json())} == {
        "takt_profile",
        "header",
        "models",
        "profile",
        "measured_pairs",
    }


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{", "not a profile of takt profile"),
        (b"\xff", "not a profile of takt profile"),
        (b"[]", "not a profile of takt profile"),
        (changed(takt_profile=2), "takt_profile: expected 1, got 2"),
        (changed(date="today"), "unknown field `date`"),
        (changed(measured_pairs=[[0, 9]]), "measured_pairs: a number is not one of solo"),
        (changed(profile={}), "not a profile"),
    ],
)
def test_what_is_no_profile_is_refused(content: bytes, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        MeasuredProfile.from_json(content)


def test_a_profile_without_a_launch_of_its_models_is_refused_before_it_serves() -> None:
    models = {"fold": {**json.loads(PROFILE.to_json())["models"]["fold"], "prefix_sizes": [1, 3]}}

    with pytest.raises(ConfigError, match="no time for mini prefix layout 0 size 3 share 2"):
        MeasuredProfile.from_json(changed(models=models))


def test_a_profile_without_a_pair_of_its_models_is_refused_before_it_serves() -> None:
    plain = json.loads(PROFILE.to_json())["profile"]
    with pytest.raises(ConfigError, match="no slowdown for mini"):
        MeasuredProfile.from_json(changed(profile={**plain, "speed": plain["speed"][:-1]}))


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json: cannot be read"):
        MeasuredProfile.read(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot be written"):
        PROFILE.write(tmp_path / "none" / "cpu.json")


def test_an_empty_file_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    path.write_bytes(b"")

    with pytest.raises(ConfigError, match=r"cpu\.json: the file is empty; expected a profile"):
        MeasuredProfile.read(path)


def test_a_full_disk_leaves_the_profile_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    PROFILE.write(path)

    with full_disk(), pytest.raises(ConfigError, match=rf"cpu\.json: cannot be written: {FULL}"):
        PROFILE.write(path)

    assert MeasuredProfile.read(path).to_json() == PROFILE.to_json()
    assert [*tmp_path.iterdir()] == [path]


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PROFILE_BYTES", 10)
    path = tmp_path / "cpu.json"
    PROFILE.write(path)

    with pytest.raises(ConfigError, match=r"cpu\.json: a profile has at most 10 bytes"):
        MeasuredProfile.read(path)


def test_a_worker_that_keeps_models_apart_finds_the_times_under_its_own_names() -> None:
    profile = PROFILE.profile_for([replace(MODEL, architecture="fold")])

    prefix, denoise = (work._replace(architecture="fold") for work in (TWO, DENOISE))
    assert profile.solo(prefix) == ms(7)
    assert profile.speed(prefix, denoise) == PROFILE.profile.speed(TWO, DENOISE)
    assert PROFILE.profile_for([MODEL]) is PROFILE.profile


def test_variants_of_one_architecture_get_the_same_times_each() -> None:
    pair = replace(PROFILE, models=(MODEL, replace(MODEL, name="sort")))

    profile = pair.profile_for([replace(it, architecture=it.name) for it in pair.models])

    fold, sort = (TWO._replace(architecture=name) for name in ("fold", "sort"))
    denoise = DENOISE._replace(architecture="sort")
    assert profile.solo(fold) == profile.solo(sort)
    assert profile.speed(fold, denoise) == profile.speed(sort, denoise)


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (replace(MODEL, name="sort"), "no model 'sort'; it has: fold"),
        (replace(MODEL, prefix_sizes=(1, 4)), "no prefix launch of 4 rows of 'fold'"),
        (replace(MODEL, holds=(0b11, 0b10)), "other layouts of 'fold'"),
    ],
)
def test_what_was_not_measured_is_refused(model: Model, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        PROFILE.profile_for([model])
