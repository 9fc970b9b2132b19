"""What does it cost robots when processes of the server are killed or stopped, and what stays?

Why it matters: a robot executes what is in its queue while a process is being replaced. The times
from the kill to the typed answer and to the next chunk say how long its queue has to be. No budget
on times: they are those of starting Python and of loading a model, here ``echo``, which loads in no
time. Budgets on what must not happen: no wrong, stale or foreign chunk; nothing left behind; a
trace that replays.

    python benchmarks/runtime/bench_life.py

Parts, each with a server of its own (``takt serve``, real processes and sockets):

- ``kills``: one robot asks; a process is killed or stopped; the time to the first answer that is no
  chunk (for a gateway: to the end of the connection) and to the first chunk after it. Every server
  suffers one fault per process, so that no restart waits for the backoff of a crash loop.
- ``chaos``: 16 robots ask with states that nobody else sends, two more send bursts of which parts
  are superseded, fail or expire; each served chunk is compared, while workers and gateways are
  killed and stopped at random. The scheduler's trace is replayed.
- ``memory``: resident memory of each process before and after many requests.
- ``leftovers``: arenas, files in ``/dev/shm``, abstract sockets and processes after everything was
  killed at once.
"""

import argparse
import contextlib
import itertools
import json
import os
import queue
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as dial

sys.path.insert(0, str(Path(__file__).parents[1]))

from _processes import memory_kib
from _record import RESULTS, circumstances, write
from takt.client import Connection, ConnectionLostError, connect
from takt.core.trace import replay
from takt.errors import RefusedError, TaktError
from takt.policies.echo import FAIL_STATE
from takt.runtime.trace_file import split_traces
from takt.units import MILLISECOND
from takt.wire.limits import Limits
from takt.wire.openpi import decode_reply, encode_observation
from takt.wire.openpi_options import RequestOptions

SEED = 7
NUM_ROBOTS = 16
NUM_HASTY = 2
TIMEOUT_S = 90.0
FAULTS = {
    "worker killed": ("worker-0", signal.SIGKILL),
    "gateway killed": ("gateway-0", signal.SIGKILL),
    "worker stopped": ("worker-0", signal.SIGSTOP),
    "gateway stopped": ("gateway-0", signal.SIGSTOP),
}
PAIRS = (("worker killed", "gateway killed"), ("worker stopped", "gateway stopped"))
"""Faults that one server can suffer one after the other without a second death in a row."""


class Server:
    """A running ``takt serve`` and what it has said."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "takt.cli.main", "serve", "--json", "--openpi", "0"]
        self.process = subprocess.Popen(
            [*command, "--model", "echo", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.pids: dict[str, int] = {}
        self.deaths = 0
        self._said: defaultdict[tuple[str, str], queue.Queue[dict[str, Any]]]
        self._said = defaultdict(queue.Queue)
        threading.Thread(target=self._read, daemon=True).start()
        self.address = f"127.0.0.1:{self.wait_for('listening', 'gateway-0')['port']}"
        self.wait_for("ready", "gateway-0")

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            self.pids[event["process"]] = event["pid"]
            self.deaths += event["event"] == "died"
            self._said[event["event"], event["process"]].put(event)

    def wait_for(self, kind: str, process: str) -> dict[str, Any]:
        """The next such event."""
        return self._said[kind, process].get(timeout=TIMEOUT_S)

    def wait_for_service(self, process: str) -> None:
        """Until the successor of a process serves."""
        self.wait_for("worker_back" if process == "worker-0" else "ready", "gateway-0")

    def rss_kib(self) -> dict[str, int]:
        """Resident memory of each process."""
        pids = {"supervisor": self.process.pid, **self.pids}
        return {name: memory_kib("VmRSS", pid) for name, pid in sorted(pids.items())}


@contextmanager
def serving(*options: str) -> Iterator[Server]:
    server = Server(*options)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait(TIMEOUT_S)


# Kills


def measure_kills(rounds: int) -> dict[str, Any]:
    times: dict[str, dict[str, list[float]]] = {
        fault: {"to_answer": [], "to_chunk": []} for fault in FAULTS
    }
    for pair in PAIRS:
        for _ in range(rounds):
            with serving() as server:
                for fault in pair:
                    process, number = FAULTS[fault]
                    to_answer, to_chunk = one_fault(server, process, number)
                    times[fault]["to_answer"].append(to_answer)
                    times[fault]["to_chunk"].append(to_chunk)
    return {
        fault: {kind: spread(values) for kind, values in found.items()}
        for fault, found in times.items()
    }


def spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "count": len(ordered),
        "p50_ms": round(1e3 * ordered[len(ordered) // 2], 1),
        "max_ms": round(1e3 * ordered[-1], 1),
    }


def one_fault(server: Server, process: str, number: int) -> tuple[float, float]:
    """Seconds from the fault to the first answer that is no chunk, and to the next chunk."""
    ready = threading.Event()
    marks: list[float] = []
    robot = threading.Thread(target=ask_through, args=(server.address, ready, marks))
    robot.start()
    ready.wait(TIMEOUT_S)
    start = time.monotonic()
    os.kill(server.pids[process], number)
    server.wait_for_service(process)
    robot.join(TIMEOUT_S)
    return marks[0] - start, marks[1] - start


def ask_through(address: str, ready: threading.Event, marks: list[float]) -> None:
    """Ask until there was an answer without a chunk and then one with; note when they came."""
    pause = threading.Event()
    while len(marks) < 2:
        with contextlib.suppress(ConnectionLostError), connect(address) as robot:
            while len(marks) < 2:
                try:
                    robot.infer({"observation/state": np.ones(7, np.float32)})
                except TaktError as error:
                    if not marks:
                        marks.append(time.monotonic())
                    if not isinstance(error, RefusedError):
                        break
                else:
                    if marks:
                        marks.append(time.monotonic())
                    ready.set()
                pause.wait(0.002)
        pause.wait(0.01)


# Chaos


class Robot(threading.Thread):
    """Wants so many chunks, with states that nobody else sends, and checks each."""

    def __init__(self, address: str, number: int, wanted: int) -> None:
        super().__init__()
        self.codes: Counter[str] = Counter()
        self.served = 0
        self.wrong = 0
        self._address, self._number, self._wanted = address, number, wanted
        self._asked = 0
        self._pause = threading.Event()

    def run(self) -> None:
        """Ask until served often enough."""
        while self.served < self._wanted:
            with contextlib.suppress(ConnectionLostError):
                self._stay_connected()
            self._pause.wait(0.05)

    def _stay_connected(self) -> None:
        with connect(self._address, robot=f"robot-{self._number}") as robot:
            while self.served < self._wanted:
                self._asked += 1
                self._ask(robot, np.array([self._number, self._asked, -self._number], np.float32))

    def _ask(self, robot: Connection, sent: np.ndarray) -> None:
        try:
            actions = robot.infer({"observation/state": sent}).actions
        except RefusedError as error:
            self.codes[error.code] += 1
            self._pause.wait(0.02)
            return
        self.served += 1
        self.wrong += not np.array_equal(actions, sent + np.arange(50, dtype=np.float32)[:, None])


class HastyRobot(threading.Thread):
    """Sends bursts before it reads, some of which fail or expire at once; checks each answer."""

    def __init__(self, address: str, number: int, stop: threading.Event) -> None:
        super().__init__()
        self.codes: Counter[str] = Counter()
        self.served = 0
        self.wrong = 0
        self._number = number
        self._url = f"ws://{address}/?robot=hasty-{number}"
        self._stop_asking, self._draw = stop, random.Random(number)
        self._sent = 0

    def run(self) -> None:
        """Ask until told to stop."""
        while not self._stop_asking.is_set():
            with (
                contextlib.suppress(OSError, WebSocketException),
                dial(self._url, compression=None, max_size=None) as socket,
            ):
                socket.recv(TIMEOUT_S)
                while not self._stop_asking.is_set():
                    self._send_burst(socket)
            self._stop_asking.wait(0.05)

    def _send_burst(self, socket: ClientConnection) -> None:
        states: list[np.ndarray] = []
        for _ in range(3):
            self._sent += 1
            first = FAIL_STATE if self._draw.random() < 0.05 else np.float32(self._sent)
            expires = MILLISECOND if self._draw.random() < 0.05 else None
            states.append(np.array([first, self._number], np.float32))
            values = {"observation/state": states[-1]}
            socket.send(encode_observation(values, RequestOptions(expires_in=expires)))
        for sent in states:  # answers come in the order of the requests
            self._check(socket.recv(TIMEOUT_S), sent)

    def _check(self, message: bytes | str, sent: np.ndarray) -> None:
        try:
            actions = decode_reply(message, Limits()).values["actions"]
        except RefusedError as error:
            self.codes[error.code] += 1
            self._stop_asking.wait(0.01)
            return
        assert isinstance(actions, np.ndarray)
        self.served += 1
        self.wrong += not np.array_equal(actions, sent + np.arange(50, dtype=np.float32)[:, None])


def run_chaos(num_requests: int, num_faults: int) -> dict[str, Any]:
    draw = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.jsonl"
        options = ("--latency-ms", "4", "--latency-per-row-ms", "0.2", "--trace", str(trace))
        with serving(*options, "--slo-ms", "300") as server:
            each = -(-num_requests // NUM_ROBOTS)
            robots = [Robot(server.address, n, each) for n in range(1, NUM_ROBOTS + 1)]
            stop = threading.Event()
            hasty = [HastyRobot(server.address, n, stop) for n in range(NUM_HASTY)]
            for robot in (*robots, *hasty):
                robot.start()
            for _ in range(num_faults):
                threading.Event().wait(draw.uniform(0.2, 1.0))
                process, number = FAULTS[draw.choice([*FAULTS])]
                os.kill(server.pids[process], number)
                server.wait_for_service(process)
            for robot in robots:
                robot.join()
            stop.set()
            for robot in hasty:
                robot.join()
        replayed = replayed_trace(trace)
    everybody = [*robots, *hasty]
    codes = sum((robot.codes for robot in everybody), Counter())
    return {
        "robots": NUM_ROBOTS,
        "hasty_robots": NUM_HASTY,
        "served": sum(robot.served for robot in everybody),
        "wrong": sum(robot.wrong for robot in everybody),
        "deaths": server.deaths,
        "answers_without_chunk": dict(sorted(codes.items())),
        "trace": replayed,
    }


def replayed_trace(path: Path) -> dict[str, Any]:
    """Replay every life of the worker; what was in its trace and whether it came again."""
    kinds: Counter[str] = Counter()
    is_same = True
    with path.open(encoding="utf-8") as lines:
        for trace in split_traces(lines):
            is_same &= list(replay(trace)) == trace
            events = [json.loads(line) for line in trace[1:]]
            kinds.update(event.get("phase") or event["event"] for event in events)
    return {"is_same": is_same, **dict(sorted(kinds.items()))}


# Memory and leftovers


def measure_memory(num_requests: int) -> dict[str, Any]:
    warm_up = max(num_requests // 10, NUM_ROBOTS)
    with serving() as server:
        wanted(server.address, warm_up)
        before = server.rss_kib()
        wanted(server.address, num_requests)
        after = server.rss_kib()
    growth = {name: after[name] - before[name] for name in before}
    return {
        "warm_up_requests": warm_up,
        "requests": num_requests,
        "before_kib": before,
        "after_kib": after,
        "growth_kib": growth,
    }


def wanted(address: str, num_requests: int) -> None:
    each = -(-num_requests // NUM_ROBOTS)
    robots = [Robot(address, number, each) for number in range(1, NUM_ROBOTS + 1)]
    for robot in robots:
        robot.start()
    for robot in robots:
        robot.join()


def find_leftovers(rounds: int) -> dict[str, int]:
    """What is left of servers after all their processes were killed at once."""
    left: Counter[str] = Counter(sockets=0, files=0, arenas=0, processes=0)
    for _ in range(rounds):
        server = Server()
        pids = [server.process.pid, *server.pids.values()]
        ends = [os.pidfd_open(pid) for pid in pids]
        wanted(server.address, NUM_ROBOTS)
        arenas = arenas_of(map(str, pids))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        server.process.wait(TIMEOUT_S)
        for end in ends:
            _wait_for_end(end)
        sockets = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
        names = (f"@takt/{pids[0]}-", f"@takt/admin-{pids[0]}\n")
        left["sockets"] += sum(sockets.count(name) for name in names)
        left["files"] += sum("takt" in name for name in os.listdir("/dev/shm"))
        left["processes"] += sum(Path(f"/proc/{pid}/exe").exists() for pid in pids)
        left["arenas"] += len(arenas & arenas_of(["[0-9]*"]))
    return dict(left)


def _wait_for_end(pidfd: int) -> None:
    select.select([pidfd], [], [], TIMEOUT_S)
    os.close(pidfd)


def arenas_of(pids: Iterable[str]) -> set[int]:
    """Inodes of the arenas that processes hold."""
    found: set[int] = set()
    for fd in itertools.chain.from_iterable(Path("/proc").glob(f"{pid}/fd/*") for pid in pids):
        with contextlib.suppress(OSError):
            if "memfd:takt-arena" in os.readlink(fd):
                found.add(fd.stat().st_ino)
    return found


def missed(result: dict[str, Any]) -> list[str]:
    """What must not happen and did."""
    chaos = result["chaos"]
    checks = {
        f"{chaos['wrong']} wrong chunks": chaos["wrong"] == 0,
        "the trace does not replay": chaos["trace"]["is_same"],
        f"left behind: {result['leftovers']}": not any(result["leftovers"].values()),
    }
    return [sentence for sentence, holds in checks.items() if not holds]


def main() -> int:
    parser = argparse.ArgumentParser(description="kills, stops, memory and leftovers")
    parser.add_argument("--kills", type=int, default=50, help="of each kind")
    parser.add_argument("--quick", action="store_true", help="few kills, few requests")
    parser.add_argument("--out", type=Path, help="where to write the result")
    asked = parser.parse_args()
    kills, chaos, faults, requests, rounds = (
        (2, 1_000, 3, 2_000, 1) if asked.quick else (asked.kills, 10_000, 8, 100_000, 5)
    )
    result: dict[str, Any] = {
        "circumstances": circumstances(seed=SEED, packages=["picows", "uvloop", "numpy"]),
        "leftovers": find_leftovers(rounds),
        "kills": measure_kills(kills),
        "chaos": run_chaos(chaos, faults),
        "memory": measure_memory(requests),
    }
    result["missed"] = missed(result)
    for fault, found in result["kills"].items():
        cells = [
            f"{kind} {spread_['p50_ms']:8.0f} {spread_['max_ms']:8.0f}"
            for kind, spread_ in found.items()
        ]
        print(f"{fault:>16}: {'   '.join(cells)}   (p50 max, ms)")
    for part in ("chaos", "memory", "leftovers", "missed"):
        print(f"{part:>16}: {result[part]}")
    out = asked.out or (None if asked.quick else RESULTS / "life.json")
    if out is not None:
        write(out, result)
    return int(bool(result["missed"]))


if __name__ == "__main__":
    sys.exit(main())
