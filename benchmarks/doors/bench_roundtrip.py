"""How long does a robot wait for everything but the inference, beside the stock openpi server?

Why it matters: what the server adds to a launch is taken from the robot's deadline. Budget, with a
policy that takes no time: with 16 robots and two 224 x 224 images 0.5 ms p50 and 2 ms p99 between
the last byte of an observation and its answer; with two 480 x 640 images a round trip not above the
stock server's, p50 and p99, in the same run.

    python benchmarks/doors/bench_roundtrip.py

Takt's gateway and worker with the ``echo`` policy, and openpi-server 0.1.0 with the same policy,
both stay up; the unmodified openpi-client 0.1.2 talks to them in turns within one run, so that the
machine's mood meets both. Robots send at 5 Hz, evenly staggered, and wait for their answers. With
20 ms per launch and 1 ms per row the stock server, which answers one robot at a time, saturates at
about 48 requests per second: 16 robots ask for 80. That is reported and has no target. A bare relay
takes its turns, too, where launches take no time: two processes with the same libraries and none of
a server's work (``bare_relay.py``), so that one sees what this machine leaves for that work.

``server`` is what each server says of itself: Takt and the relay from the last byte read to the
reply's encoding, the stock server its policy's call alone, so only ``round_trip`` compares it. CPU
per request is that of the server's processes. The stock pair lives in an environment of its own
(``~/.cache/takt-bench``, or the folder named by ``TAKT_BENCH_CACHE``), made on the first run.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import venv
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from _takt_server import child, serving

from _processes import cpu_s
from _record import RESULTS, circumstances, write

PEERS = Path(__file__).with_name("openpi_peers.py")
RELAY = Path(__file__).with_name("bare_relay.py")
PACKAGES = ("openpi-client==0.1.2", "openpi-server==0.1.0", "typing_extensions", "numpy<2")
SIZES = {"2x224x224": (224, 224), "2x480x640": (480, 640)}
LATENCIES = {"zero": (0.0, 0.0), "20ms+1ms/row": (20.0, 1.0)}
HZ = 5.0
SEED = 7
BUDGET_P50_MS, BUDGET_P99_MS = 0.5, 2.0


@dataclass
class Contestant:
    """A server that is up, and what was measured with it."""

    port: int
    pids: list[int]
    round_trips: list[float] = field(default_factory=list)
    server_times: list[float] = field(default_factory=list)
    lateness: list[float] = field(default_factory=list)
    cpu_ms: float = 0.0

    def used_ms(self) -> float:
        """CPU time of its processes so far."""
        return 1e3 * sum(map(cpu_s, self.pids))

    def figures(self) -> dict[str, object]:
        """What goes into the result."""
        return {
            "requests": len(self.round_trips),
            "round_trip": quantiles(self.round_trips),
            "server": quantiles(self.server_times),
            "left_late": quantiles(self.lateness),
            "cpu_ms_per_request": round(self.cpu_ms / len(self.round_trips), 3),
        }


def quantiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50_ms": round(cuts[49], 3), "p99_ms": round(cuts[98], 3)}


def stock_python() -> Path:
    """Interpreter that has openpi's server and client."""
    cache = os.environ.get("TAKT_BENCH_CACHE") or Path.home() / ".cache" / "takt-bench"
    home = Path(cache) / "openpi-0.1"
    python = home / "bin" / "python"
    ready = home / "ready"
    if not ready.exists():
        print(f"making {home} ...", file=sys.stderr)
        venv.create(home, with_pip=True, clear=True)
        install = [python, "-m", "pip", "install", "--quiet", *PACKAGES]
        subprocess.run(install, check=True)
        ready.touch()
    return python


def start_takt(stack: ExitStack, latency: tuple[float, float]) -> Contestant:
    launch_ms, row_ms = latency
    server = stack.enter_context(
        serving(["openpi"], latency_ms=launch_ms, latency_per_row_ms=row_ms, slo_ms=1000.0)
    )
    return Contestant(server.ports["openpi"], [server.worker.pid, server.gateway.pid])


def start_stock(stack: ExitStack, python: Path, latency: tuple[float, float]) -> Contestant:
    command = [str(python), str(PEERS), "serve", *map(str, latency)]
    server = stack.enter_context(child(command))
    assert server.stdout is not None
    return Contestant(int(server.stdout.readline()), [server.pid])


def start_relay(stack: ExitStack) -> Contestant:
    front = stack.enter_context(child([sys.executable, str(RELAY)]))
    assert front.stdout is not None
    port = int(front.stdout.readline())
    back = Path(f"/proc/{front.pid}/task/{front.pid}/children").read_text()
    return Contestant(port, [front.pid, int(back)])


def drive(
    server: Contestant, python: Path, robots: int, seconds: float, size: tuple[int, int]
) -> None:
    """One turn of the client with one server."""
    asked = (server.port, robots, HZ, seconds, *size, SEED)
    before = server.used_ms()
    command = [str(python), str(PEERS), "drive", *map(str, asked)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    server.cpu_ms += server.used_ms() - before
    for kind, values in json.loads(done.stdout).items():
        getattr(server, kind).extend(values)


def compare(
    python: Path, *, latency: str, robots: int, size: str, turns: int, seconds: float
) -> dict[str, Any]:
    with ExitStack() as stack:
        servers = {
            "takt": start_takt(stack, LATENCIES[latency]),
            "stock": start_stock(stack, python, LATENCIES[latency]),
        }
        if latency == "zero":
            servers["relay"] = start_relay(stack)
        for _ in range(turns):
            for server in servers.values():
                drive(server, python, robots, seconds, SIZES[size])
        return {
            "latency": latency,
            "robots": robots,
            "size": size,
            **{name: server.figures() for name, server in servers.items()},
        }


def missed(case: dict[str, Any]) -> list[str]:
    """Targets that a case misses."""
    if case["latency"] != "zero":
        return []
    ours, theirs = case["takt"], case["stock"]
    found: list[str] = []
    if case["size"] == "2x224x224" and case["robots"] == 16:
        for cut, budget in (("p50_ms", BUDGET_P50_MS), ("p99_ms", BUDGET_P99_MS)):
            if ours["server"][cut] > budget:
                found.append(f"{case['size']}: server {cut} {ours['server'][cut]} > {budget}")
    if case["size"] == "2x480x640":
        found += [
            f"{case['size']}, {case['robots']} robots: round trip {cut} "
            f"{ours['round_trip'][cut]} > stock {theirs['round_trip'][cut]}"
            for cut in ("p50_ms", "p99_ms")
            if ours["round_trip"][cut] > theirs["round_trip"][cut]
        ]
    return found


def show(case: dict[str, Any]) -> None:
    for name in ("takt", "stock", "relay"):
        if name not in case:
            continue
        found = case[name]
        cells = [
            f"{kind} {found[kind]['p50_ms']:8.2f} {found[kind]['p99_ms']:8.2f}"
            for kind in ("round_trip", "server")
        ]
        print(
            f"{case['latency']:>13} {case['robots']:3} robots {case['size']} {name:>5}: "
            f"{'   '.join(cells)}   cpu {found['cpu_ms_per_request']:.2f}   (p50 p99, ms)"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Takt and the stock openpi server, in turns")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each turn")
    parser.add_argument("--quick", action="store_true", help="2 turns of 2 seconds")
    parser.add_argument("--out", type=Path, help="where to write the result")
    asked = parser.parse_args()
    turns, seconds = (2, 2.0) if asked.quick else (asked.turns, asked.seconds)
    python = stock_python()
    cases = [
        compare(python, latency=latency, robots=robots, size=size, turns=turns, seconds=seconds)
        for latency in LATENCIES
        for size in SIZES
        for robots in (1, 16)
    ]
    result: dict[str, Any] = {
        "circumstances": circumstances(seed=SEED, packages=["picows", "uvloop", "numpy"]),
        "stock": [*PACKAGES],
        "turns": turns,
        "seconds": seconds,
        "cases": cases,
        "missed": [target for case in cases for target in missed(case)],
    }
    for case in cases:
        show(case)
    for target in result["missed"]:
        print(f"missed: {target}")
    out = asked.out or (None if asked.quick else RESULTS / "roundtrip.json")
    if out is not None:
        write(out, result)
    return int(bool(result["missed"]))


if __name__ == "__main__":
    sys.exit(main())
