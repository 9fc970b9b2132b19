import threading
from collections.abc import Mapping

import pytest

from takt.client.cameras import Cameras
from takt.errors import ConfigError
from takt.testing import ManualClock
from takt.units import ms

PATIENCE_S = 20.0


def test_images_are_as_old_as_the_instant_before_they_were_read() -> None:
    clock = ManualClock(ms(100))

    def read() -> Mapping[str, object]:
        clock.advance(ms(30))
        return {"image": 1}

    cameras = Cameras(read, rate_hz=10.0, clock=clock.now)
    assert cameras.newest is None
    cameras.read_once()

    assert cameras.newest is not None
    assert (cameras.newest.values, cameras.newest.taken) == ({"image": 1}, ms(100))


def test_a_read_that_fails_is_counted_and_the_last_images_grow_old(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = iter([{"image": 1}])
    cameras = Cameras(lambda: next(said), rate_hz=10.0, clock=ManualClock().now)
    for _ in range(3):
        cameras.read_once()

    assert cameras.newest is not None
    assert cameras.newest.values == {"image": 1}
    assert cameras.failures == 2
    assert caplog.text.count("reading the cameras failed") == 1


def test_the_thread_reads_until_it_is_closed() -> None:
    twice = threading.Event()
    reads: list[int] = []

    def read() -> Mapping[str, object]:
        reads.append(1)
        if len(reads) == 2:
            twice.set()
        return {}

    cameras = Cameras(read, rate_hz=1000.0)
    cameras.start()
    assert twice.wait(PATIENCE_S)
    cameras.close()
    done = len(reads)

    assert len(reads) == done
    assert not [thread for thread in threading.enumerate() if thread.name == "takt-cameras"]


def test_a_rate_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="image rate_hz"):
        Cameras(dict, rate_hz=0.0)


def test_a_read_that_returns_no_mapping_is_a_failed_read() -> None:
    cameras = Cameras(lambda: None, rate_hz=10)  # type: ignore[arg-type, return-value]
    cameras.read_once()

    assert cameras.newest is None
    assert cameras.failures == 1
