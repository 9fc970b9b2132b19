"""What was measured is found again, and only where it still holds."""

from pathlib import Path

import pytest
from tests.full_disk import FULL, full_disk

from takt.core.profile import Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.runtime.profiling.cache import Cache, cache_folder, cache_path
from takt.runtime.profiling.median import Median

PREFIX = Work("pi0", Stage.PREFIX, 0, 2, 188)
DENOISE = Work("pi0", Stage.DENOISE, 0, 4, 188)
ALONE = Median(10, 9, 11, 8)
BOTH = (Median(20, 19, 21, 8), Median(30, 29, 31, 40))
DIGESTS = {"pi0": "a1"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "takt" / "device.jsonl"


def test_what_is_kept_is_found_by_the_next_process(path: Path) -> None:
    first = Cache(path, DIGESTS)
    first.keep([ALONE], PREFIX)
    first.keep(BOTH, PREFIX, DENOISE)

    second = Cache(path, DIGESTS)

    assert second.find(PREFIX) == (ALONE,)
    assert second.find(PREFIX, DENOISE) == BOTH
    assert second.find(DENOISE) is None


def test_the_last_word_counts(path: Path) -> None:
    cache = Cache(path, DIGESTS)
    cache.keep([BOTH[0]], PREFIX)
    cache.keep([ALONE], PREFIX)

    assert Cache(path, DIGESTS).find(PREFIX) == (ALONE,)


def test_a_line_cut_short_by_a_kill_is_passed_over_and_the_next_stands_alone(path: Path) -> None:
    Cache(path, DIGESTS).keep([ALONE], PREFIX)
    with path.open("ab") as file:
        file.write(b'["pi0:a1 den')

    Cache(path, DIGESTS).keep([BOTH[0]], DENOISE)
    cache = Cache(path, DIGESTS)

    assert cache.find(PREFIX) == (ALONE,)
    assert cache.find(DENOISE) == (BOTH[0],)


def test_a_full_disk_leaves_what_was_measured(path: Path) -> None:
    cache = Cache(path, DIGESTS)
    cache.keep([ALONE], PREFIX)

    with full_disk(8), pytest.raises(ConfigError, match=f"{FULL}; the cache is there"):
        Cache(path, DIGESTS)

    assert Cache(path, DIGESTS).find(PREFIX) == (ALONE,)


def test_other_shapes_of_an_architecture_are_not_known(path: Path) -> None:
    Cache(path, DIGESTS).keep([ALONE], PREFIX)

    assert Cache(path, {"pi0": "b2"}).find(PREFIX) is None


def test_a_refresh_forgets(path: Path) -> None:
    Cache(path, DIGESTS).keep([ALONE], PREFIX)

    assert Cache(path, DIGESTS, refresh=True).find(PREFIX) is None
    assert path.read_bytes() == b""


def test_without_a_file_what_is_kept_lives_as_long_as_the_cache() -> None:
    cache = Cache(None, {})
    cache.keep([ALONE], PREFIX)

    assert cache.find(PREFIX) == (ALONE,)


def test_a_folder_that_cannot_be_made_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "takt").write_text("a file")

    with pytest.raises(ConfigError, match=r"device\.jsonl: .*the cache is there"):
        Cache(tmp_path / "takt" / "device.jsonl", {})


def test_the_folder_is_the_users_cache() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/takt/profiles")
    assert cache_folder({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache/takt/profiles"


def test_engines_and_versions_have_files_of_their_own() -> None:
    folder = Path("/cache")
    paths = {
        cache_path(folder, "A CPU", "openvino 1", {"takt": "1"}),
        cache_path(folder, "A CPU", "openvino 2", {"takt": "1"}),
        cache_path(folder, "A CPU", "openvino 2", {"takt": "2"}),
    }

    assert len(paths) == 3
    assert all(path.name.startswith("a-cpu-") for path in paths)
