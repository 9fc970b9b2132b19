"""A trace on disk is whole lines, whatever happens to its writer."""

import os
from pathlib import Path

import pytest
from tests.runtime.driving import Rig

from takt.core.trace import replay
from takt.errors import ConfigError
from takt.runtime.trace_file import TraceFile, begin_trace, split_traces


def test_lines_are_on_disk_as_soon_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    trace = TraceFile(str(path))

    trace(["one", "two"])
    first = path.read_text()
    trace(["three"])
    trace.close()

    assert first == "one\ntwo\n"
    assert path.read_text() == "one\ntwo\nthree\n"


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        TraceFile(str(tmp_path / "nowhere" / "trace"))


@pytest.mark.parametrize("left", ["", "one\n", "one\ntw", "o" * 200_000, "one\n" + "o" * 200_000])
def test_a_writer_that_starts_again_goes_on_after_the_last_whole_line(
    tmp_path: Path, left: str
) -> None:
    path = tmp_path / "trace"
    path.write_text(left)

    trace = TraceFile(str(path))
    trace(["two"])
    trace.close()

    whole = left[: left.rfind("\n") + 1]
    assert path.read_text() == whole + "two\n"


def test_a_full_disk_ends_the_trace_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    trace = TraceFile("/dev/full")

    for line in ("one", "two", "three"):
        trace([line])
    trace.close()

    assert [record.getMessage() for record in caplog.records] == [
        "the trace has ended: path=/dev/full reason=No space left on device"
    ]


def test_each_setup_begins_a_trace_that_replays_and_a_cut_line_is_left_out() -> None:
    rig = Rig()
    rig.submit()
    rig.run_out()
    rig.step(rig.setup_changed())
    rig.submit()
    lines = [f"{line}\n" for line in rig.trace]

    traces = list(split_traces([*lines, '{"event":"dec']))

    assert len(traces) == 2
    assert [line for trace in traces for line in trace] == rig.trace
    for trace in traces:
        assert list(replay(trace)) == trace


def test_a_trace_begins_empty_and_its_workers_add_to_it(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("of an earlier server\n")

    held = begin_trace(str(path))
    for line in ("one", "two"):  # a worker, and the one that is started again
        trace = TraceFile(str(path))
        trace([line])
        trace.close()
    os.close(held)

    assert path.read_text() == "one\ntwo\n"


def test_a_trace_belongs_to_one_server_until_its_last_process_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    server = begin_trace(str(path))
    worker = os.dup(server)
    path.write_text("one\n")

    for last in (server, worker):
        with pytest.raises(ConfigError, match=f"^{path}: another server still writes it"):
            begin_trace(str(path))
        assert path.read_text() == "one\n"
        os.close(last)

    os.close(begin_trace(str(path)))
    assert path.read_text() == ""


def test_what_holds_no_trace_is_shared() -> None:
    for held in [begin_trace("/dev/null"), begin_trace("/dev/null")]:
        os.close(held)


def test_a_trace_that_cannot_begin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        begin_trace(str(tmp_path))
