"""What does one hostile client cost the robots beside it, on each door?

Why it matters: a robot that was taken over, or a script gone wrong, must not decide when others get
their actions. The bounds are the doors' own: messages per connection and second, connections,
bytes that wait for the rest of their message.

    python benchmarks/doors/bench_flood.py --out results/flood.json

Sixteen good robots ask at 5 Hz through the openpi door (echo, no images) and their round trips are
measured, first alone, then while one client floods a door at a fixed rate on one connection:

- ``openpi``: frames that are no observation (64 KiB of 0xc1);
- ``openpi_valid``: valid observations with an image of 224 x 224, never reading an answer;
- ``lerobot``: observations whose pickle asks for something forbidden (64 KiB);
- ``lerobot_pieces``: observations that begin and never end, 2 MiB each;
- ``lerobot_polls``: handshakes and polls, as many at once as the connection takes.

For each case: round trips of the good robots, what the gateway counted of the flood (calls,
refusals by code), its CPU time, and the most memory it has had. The exit status is 1 if good robots
went without answers.
"""

import argparse
import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
from grpc import aio
from websockets.asyncio.client import ClientConnection, connect

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from _takt_server import Server, serving

from _record import circumstances, write
from takt.doors.lerobot_grpc import SERVICE
from takt.wire.lerobot_messages import TransferState, encode_observation_message
from takt.wire.limits import Limits
from takt.wire.openpi import decode_reply, encode_observation

SEED = 13
ROBOTS = 16
HZ = 5.0
LIMITS = Limits()
# protocol 4, then a global that no client of LeRobot names
FORBIDDEN = b"\x80\x04\x8c\x02os\x8c\x06system\x93" + b"\x00" * (64 * 1024)
GARBAGE = b"\xc1" * (64 * 1024)


async def robot(port: int, number: int, end: float, trips: list[float]) -> None:
    """A good robot, which waits for its answers."""
    state = np.full(7, float(number * 1000), np.float32)
    message = encode_observation({"observation/state": state, "prompt": "fold"})
    async with connect(f"ws://127.0.0.1:{port}/", compression=None, max_size=None) as link:
        await link.recv()
        at = time.monotonic() + number / ROBOTS / HZ
        while at < end:
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            begin = time.perf_counter()
            await link.send(message)
            answer = decode_reply(await link.recv(), LIMITS).values
            trips.append((time.perf_counter() - begin) * 1e3)
            if np.asarray(answer["actions"])[0, 0] != state[0]:
                raise SystemExit("a robot got actions of another")
            at += 1.0 / HZ


async def paced(
    rate_hz: float, end: float, act: Callable[[], Awaitable[object]], at_once: int = 4
) -> int:
    """Do something at a fixed rate, at most so many at once; how often it was done."""
    running: set[asyncio.Task[None]] = set()

    async def once() -> None:
        try:
            await act()
        except (aio.AioRpcError, OSError):
            return  # refused, as it should be

    done, at = 0, time.monotonic()
    while at < end:
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        if len(running) < at_once:
            task = asyncio.create_task(once())
            running.add(task)
            task.add_done_callback(running.discard)
            done += 1
        at += 1.0 / rate_hz
    for task in running:
        task.cancel()
    return done


async def flood_openpi(
    port: int, end: float, rate_hz: float, message: bytes, *, reads: bool
) -> int:
    """Send one message over and over on one connection."""
    sent = 0
    while time.monotonic() < end:
        async with connect(f"ws://127.0.0.1:{port}/", compression=None, max_size=None) as link:
            reading = asyncio.create_task(_drain(link)) if reads else None
            try:
                left = end - time.monotonic()
                sent += await asyncio.wait_for(
                    paced(rate_hz, end, lambda link=link: link.send(message)), left + 1.0
                )
            except (TimeoutError, OSError):
                pass
            finally:
                if reading is not None:
                    reading.cancel()
                link.transport.abort()
    return sent


async def _drain(link: ClientConnection) -> None:
    async for _ in link:
        pass


async def flood_lerobot(port: int, end: float, rate_hz: float, what: str) -> int:
    """Call one method over and over on one connection."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        send: Any = channel.stream_unary(f"/{SERVICE}/SendObservations")
        ready: Any = channel.unary_unary(f"/{SERVICE}/Ready")
        poll: Any = channel.unary_unary(f"/{SERVICE}/GetActions")
        forbidden = encode_observation_message(TransferState.END, FORBIDDEN)

        async def pieces() -> AsyncIterator[bytes]:
            yield encode_observation_message(TransferState.BEGIN, bytes(2 * 2**20))
            while True:
                yield encode_observation_message(TransferState.MIDDLE, bytes(2 * 2**20))

        turns = itertools.count()
        acts: dict[str, Callable[[], Awaitable[object]]] = {
            "lerobot": lambda: send(iter([forbidden])),
            "lerobot_pieces": lambda: send(pieces()),
            "lerobot_polls": lambda: ready(b"") if next(turns) % 2 else poll(b""),
        }
        return await paced(rate_hz, end, acts[what], at_once=32)


def flooding(what: str, server: Server, end: float, rate_hz: float) -> Awaitable[int] | None:
    """The hostile client of a case."""
    if what == "alone":
        return None
    if what == "openpi":
        return flood_openpi(server.ports["openpi"], end, rate_hz, GARBAGE, reads=True)
    if what == "openpi_valid":
        image = np.zeros((224, 224, 3), np.uint8)
        state = np.zeros(7, np.float32)
        message = encode_observation({"observation/image": image, "observation/state": state})
        return flood_openpi(server.ports["openpi"], end, rate_hz, message, reads=False)
    return flood_lerobot(server.ports["lerobot"], end, rate_hz, what)


async def run_case(what: str, server: Server, seconds: float, rate_hz: float) -> dict[str, Any]:
    trips: list[float] = []
    used = server.gateway_s()
    end = time.monotonic() + seconds
    robots = [
        asyncio.create_task(robot(server.ports["openpi"], number, end, trips))
        for number in range(ROBOTS)
    ]
    hostile = flooding(what, server, end, rate_hz)
    sent = 0 if hostile is None else await hostile
    await asyncio.wait_for(asyncio.gather(*robots), seconds + 30.0)
    cuts = statistics.quantiles(trips, n=100, method="inclusive")
    return {
        "hostile_sent": sent,
        "answers": len(trips),
        "p50_ms": round(cuts[49], 3),
        "p99_ms": round(cuts[98], 3),
        "max_ms": round(max(trips), 3),
        "gateway_cpu_share": round((server.gateway_s() - used) / seconds, 3),
        "gateway_peak_mib": round(server.gateway_peak_mib(), 1),
    }


CASES = ("alone", "openpi", "openpi_valid", "lerobot", "lerobot_pieces", "lerobot_polls")


def main() -> int:
    parser = argparse.ArgumentParser(description="one hostile client beside sixteen robots")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each case")
    parser.add_argument("--rate-hz", type=float, default=1000.0, help="of the hostile client")
    parser.add_argument("--quick", action="store_true", help="2 seconds of each case")
    parser.add_argument("--out", type=Path, help="where to write the result")
    options = parser.parse_args()
    seconds = 2.0 if options.quick else options.seconds
    cases: dict[str, Any] = {}
    for what in CASES:
        with serving() as server:
            figures = asyncio.run(run_case(what, server, seconds, options.rate_hz))
            counters = server.stop()
        figures["counters"] = {
            name: count
            for name, count in counters.items()
            if name.startswith(("openpi.", "lerobot.", "refused", "accepted", "served"))
        }
        cases[what] = figures
        print(f"{what:15} {figures}")
    result = {
        "benchmark": "doors/flood",
        "robots": ROBOTS,
        "robot_hz": HZ,
        "hostile_hz": options.rate_hz,
        "seconds": seconds,
        "cases": cases,
        **circumstances(seed=SEED, packages=["grpcio", "picows", "uvloop", "websockets"]),
    }
    if options.out is not None:
        write(options.out, result)
    asked = ROBOTS * int(seconds * HZ)
    return int(any(case["answers"] < 0.5 * asked for case in cases.values()))


if __name__ == "__main__":
    sys.exit(main())
