"""A checkpoint is looked for inside the model roots, and nothing outside of them is read."""

import os
from pathlib import Path

import pytest

from takt.errors import ConfigError
from takt.server.model_roots import ModelRoots


def checkpoint(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.mark.parametrize("policy", ["echo", "mini", "paced:pi05"])
def test_a_policy_of_the_package_needs_no_root(policy: str, tmp_path: Path) -> None:
    roots = ModelRoots.of([tmp_path], tmp_path)

    assert roots.placed(policy, {"horizon": 3}, tmp_path) == (policy, {"horizon": 3})


def test_without_roots_a_path_starts_where_the_operator_is(tmp_path: Path) -> None:
    found = ModelRoots().placed("../fold", {}, tmp_path / "here")

    assert found == (str(tmp_path / "fold"), {})


def test_a_checkpoint_inside_a_root_may_not_leave_it_whatever_its_options_say(
    tmp_path: Path,
) -> None:
    fold = checkpoint(tmp_path / "models" / "team" / "fold")
    roots = ModelRoots.of(["models"], tmp_path)

    policy, options = roots.placed("team/fold", {"root": "/", "engine": "torch"}, tmp_path)

    assert policy == str(fold)
    assert options == {"root": str(tmp_path / "models"), "engine": "torch"}


def test_roots_are_searched_in_their_order(tmp_path: Path) -> None:
    first, _ = checkpoint(tmp_path / "a" / "fold"), checkpoint(tmp_path / "b" / "fold")
    second = checkpoint(tmp_path / "b" / "pour")
    roots = ModelRoots.of(["a", "b"], tmp_path)

    assert roots.placed("fold", {}, tmp_path)[0] == str(first)
    assert roots.placed("pour", {}, tmp_path)[0] == str(second)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("../secret", "without '..'"),
        ("{outside}", "must be relative"),
        ("link", "a link leads out"),
        ("team/missing", "not found in the 1 configured"),
        ("https://host/fold", "expected a relative path"),
    ],
)
def test_what_lies_outside_of_the_roots_is_refused(policy: str, says: str, tmp_path: Path) -> None:
    secret = checkpoint(tmp_path / "secret")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "link").symlink_to(secret)
    roots = ModelRoots.of(["models"], tmp_path)

    with pytest.raises(ConfigError, match=says):
        roots.placed(policy.format(outside=secret), {}, tmp_path)


@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("none", "no such folder"),
        ("none/deeper", "no such folder"),
        ("file", "is no folder"),
        ("circle", "no such folder"),
        ("n" * 300, "no such folder"),
    ],
)
def test_a_root_that_is_no_folder_is_refused(root: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "circle").symlink_to("circle")

    with pytest.raises(ConfigError) as refused:
        ModelRoots.of([".", root], tmp_path)

    assert str(refused.value) == f"{tmp_path / root}: {why}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter everything")
def test_a_root_that_is_closed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(0o600)

    with pytest.raises(ConfigError, match="closed: you may not enter this folder"):
        ModelRoots.of(["closed"], tmp_path)


def test_a_name_that_no_folder_can_have_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not found in the 1 configured"):
        ModelRoots.of([tmp_path], tmp_path).placed("n" * 299, {}, tmp_path)


def test_a_name_that_is_no_path_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="null"):
        ModelRoots().placed("a\0b", {}, tmp_path)
