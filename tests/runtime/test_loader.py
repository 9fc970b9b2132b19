"""Models are loaded one after another; one that fails is reported and stops nobody."""

import threading
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from takt.core.profile import Profile
from takt.errors import ConfigError
from takt.hardware import model_for, profile_for
from takt.hardware.measured import MeasuredProfile, ProfileHeader
from takt.policies.interface import Placement
from takt.runtime.config import WorkerConfig
from takt.runtime.loader import AllLoaded, Closed, Loader, LoaderEvent, OfferChanged
from takt.schema.serving import ServedModel

TIMEOUT_S = 60
ECHO = ServedModel(name="echo", policy="echo")
TWIN = ServedModel(name="twin", policy="echo", options={"latency_ms": 1.0})
MISSPELT = ServedModel(name="odd", policy="ehco")


def told(*models: ServedModel, max_requests: int = 16) -> list[LoaderEvent]:
    """Everything a loader says until it has done."""
    config = WorkerConfig(name="w", address="a", models=models, max_requests=max_requests)
    return all_told(config, lambda _, function: function())


def all_told(config: WorkerConfig, call: Any) -> list[LoaderEvent]:  # noqa: ANN401 - calls or raises
    posted: Queue[LoaderEvent] = Queue()
    loader = Loader(config, call, posted.put, lambda: 0)
    loader.start()
    events: list[LoaderEvent] = []
    while not events or not isinstance(events[-1], AllLoaded):
        events.append(posted.get(timeout=TIMEOUT_S))
    loader.stop()
    return events


def states(events: list[LoaderEvent]) -> list[tuple[str, str]]:
    return [(e.offer.model, e.offer.state) for e in events if isinstance(e, OfferChanged)]


def test_each_model_is_offered_as_loading_and_then_as_ready() -> None:
    events = told(ECHO, TWIN)

    assert states(events) == [
        ("echo", "loading"),
        ("twin", "loading"),
        ("echo", "ready"),
        ("twin", "ready"),
    ]
    ready = events[2]
    assert isinstance(ready, OfferChanged)
    assert ready.loaded is not None
    assert ready.offer.spec["architecture"] == "echo"
    assert ready.offer.denoise_batches == (1, 2, 4, 8, 16)


def test_a_model_that_cannot_be_opened_is_reported_and_the_next_is_loaded() -> None:
    events = told(MISSPELT, ECHO)

    assert states(events)[2:] == [("odd", "failed"), ("echo", "ready")]
    failed = events[2]
    assert isinstance(failed, OfferChanged)
    assert "no policy 'ehco'" in failed.offer.reason
    assert failed.loaded is None


def test_a_model_that_does_not_fit_says_why() -> None:
    events = told(ECHO, max_requests=2)

    failed = events[1]
    assert isinstance(failed, OfferChanged)
    assert "max_requests must be at least 16" in failed.offer.reason


def test_a_fault_of_a_network_is_reported_without_its_details() -> None:
    def broken(_: object, function: object) -> None:
        raise RuntimeError("/home/robot/weights")

    config = WorkerConfig(name="w", address="a", models=(ECHO,))

    events = all_told(config, broken)

    assert states(events)[-1] == ("echo", "failed")
    assert isinstance(events[1], OfferChanged)
    assert events[1].offer.reason == "RuntimeError; the worker's log says more"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("openvino", "the package openvino is not installed here"),
        ("torch.cuda", "the package torch is not installed here"),
        ("takt.nowhere", "ModuleNotFoundError; the worker's log says more"),
        (None, "ModuleNotFoundError; the worker's log says more"),
    ],
)
def test_a_package_that_is_missing_is_named(name: str | None, reason: str) -> None:
    def lacking(_: object, function: object) -> None:
        raise ModuleNotFoundError("no module", name=name)

    config = WorkerConfig(name="w", address="a", models=(ECHO,))

    events = all_told(config, lacking)

    assert isinstance(events[1], OfferChanged)
    assert events[1].offer.reason == reason


def test_a_loader_that_is_stopped_says_nothing_more() -> None:
    config = WorkerConfig(name="w", address="a", models=(ECHO, TWIN))
    posted: Queue[LoaderEvent] = Queue()

    def post(event: LoaderEvent) -> None:
        posted.put(event)
        loader.stop()

    loader = Loader(config, lambda _, function: function(), post, lambda: 0)
    loader.start()
    for thread in threading.enumerate():
        if thread.name == "loader":
            thread.join(TIMEOUT_S)

    assert posted.qsize() == 1


def test_a_model_is_loaded_and_closed_while_others_serve() -> None:
    posted: Queue[LoaderEvent] = Queue()
    config = WorkerConfig(name="w", address="a", models=(ECHO,), max_requests=16)
    loader = Loader(config, lambda _, function: function(), posted.put, lambda: 0)
    loader.start()
    while not isinstance(posted.get(timeout=TIMEOUT_S), AllLoaded):
        pass

    loader.load(TWIN)
    ready = posted.get(timeout=TIMEOUT_S)
    assert isinstance(ready, OfferChanged)
    assert ready.loaded is not None
    loader.discard(ready.loaded)

    assert posted.get(timeout=TIMEOUT_S) == Closed("twin")
    loader.stop()


def loaded_by(paced: str | None, policy: str) -> str:
    """What becomes of a model that is loaded while the worker runs."""
    posted: Queue[LoaderEvent] = Queue()
    config = WorkerConfig(name="w", address="a", models=(), paced=paced)
    loader = Loader(config, lambda _, function: function(), posted.put, lambda: 0)
    loader.start()
    loader.load(ServedModel(name="fold", policy=policy))
    events = [posted.get(timeout=TIMEOUT_S) for _ in range(2)]
    loader.stop()
    (changed,) = [event for event in events if isinstance(event, OfferChanged)]
    return changed.offer.reason or changed.offer.state


def test_a_paced_worker_loads_stand_ins_alone_and_another_one_none() -> None:
    assert loaded_by("h100", "paced:pi0") == "ready"
    assert "a paced device runs stand-ins" in loaded_by("h100", "echo")
    assert "needs a paced device" in loaded_by(None, "paced:pi0")


def test_a_model_that_the_profile_lacks_fails_before_it_is_loaded(tmp_path: Path) -> None:
    header = ProfileHeader(
        device="a CPU",
        engine="none",
        versions={},
        precision="none",
        relative_error=0.03,
        confidence=0.95,
    )
    empty = Profile(units=1, shares=(1,), solo={}, slowdown={})
    MeasuredProfile(header=header, models=(), profile=empty).write(tmp_path / "cpu.json")
    config = WorkerConfig(
        name="w", address="a", models=(ECHO,), profile_path=str(tmp_path / "cpu.json")
    )

    events = all_told(config, lambda _, function: function())

    failed = events[1]
    assert isinstance(failed, OfferChanged)
    assert failed.offer.reason == "the profile has no model 'echo'; it has: none"


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_model_runs_in_the_number_format_its_profile_was_measured_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    header = ProfileHeader(
        device="a CPU",
        engine="none",
        versions={},
        precision=precision,
        relative_error=0.03,
        confidence=0.95,
    )
    known = (model_for("pi0", "echo", 100.0, (1,), (1,)),)
    times = profile_for("h100", known)
    MeasuredProfile(header=header, models=known, profile=times).write(tmp_path / "cpu.json")
    seen: list[str] = []

    def load(_: ServedModel, placement: Placement, *rest: object) -> None:
        del rest
        seen.append(placement.precision)
        raise ConfigError("seen enough")

    monkeypatch.setattr("takt.runtime.loader.load_model", load)
    path = str(tmp_path / "cpu.json")
    config = WorkerConfig(name="w", address="a", models=(ECHO,), profile_path=path)

    all_told(config, lambda _, function: function())

    assert seen == [precision]
