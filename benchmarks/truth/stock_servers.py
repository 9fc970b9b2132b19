"""How many robots do the servers that robots' clients were made for carry, beside Takt?

Four ways to the same graphs of `mini`, in the same number format, one thread to a launch:

- openpi-server 0.1.0, asked by openpi-client 0.1.2, open loop: a chunk twice a second;
- Takt's openpi door, asked by the same client in the same way;
- LeRobot 0.4.4's policy server, asked by LeRobot's own client, which wants the next chunk when
  half of the last one is executed: about twice a second;
- Takt's LeRobot door, asked by the same client in the same way.

They take turns at one robot, at the predicted knee and at the populations beside it, then each at
2, 4, 8 and so on until it fails. Whose chunk a robot got is seen and not assumed:
at the openpi door every robot has an observation and a noise of its own, so its chunk is known
before; LeRobot's replies bear the time stamp of the observation they were computed from.

Each stock server lives in an environment of its own, whose interpreter ``run.py`` is told. One has
openpi-server and openpi-client, the other LeRobot as ``make interop`` installs it. Both also have
what the network needs: openvino, of the version that is here, opencv-python-headless, safetensors
and msgspec; Takt itself they take from this checkout.
"""

from __future__ import annotations

import atexit
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.truth._mini_policy import MiniPolicy
from benchmarks.truth._peers import Peer, PeerGoneError
from benchmarks.truth._stock_words import FAILS_BELOW, answered_share, sections
from benchmarks.truth._takt_servers import RATE_HZ, SLO_MS, TaktServers, around, predict, used_s
from benchmarks.truth.part import Cell, Claim, Found

from takt.policies.mini.replay import load_recordings

__all__ = ["PART", "StockServers", "judged", "populations"]

HERE = Path(__file__).parent
SERVERS = ("openpi", "takt openpi", "lerobot", "takt lerobot")
STOCK = ("openpi", "lerobot")
ROUNDS, QUICK_ROUNDS = 2, 1
SECONDS, QUICK_SECONDS = 6.0, 3.0
WARM_UP_S = 1.0
OVERHEAD_S = {"openpi": 2.0, "lerobot": 3.0}
MOST_ROBOTS = 64
START_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 60.0


@dataclass
class StockServers:
    """The part of the page about other servers."""

    name: str = "stock"
    packages: Sequence[str] = ("numpy", "openvino", "picows", "uvloop")
    interpreters: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    """``openpi``: one with openpi-server and openpi-client; ``lerobot``: one with LeRobot. Both
    with OpenVINO. What there is none for is not measured."""
    _takt: TaktServers = field(default_factory=TaktServers)
    _peers: dict[str, Peer] = field(default_factory=dict[str, Peer])
    _ports: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        atexit.register(self.close)

    def cells(self, quick: bool, found: Found) -> Sequence[Cell]:
        """See :class:`part.Part`."""
        if not any(self.interpreters.values()):
            return []
        knee = Cell(key="knee", seconds=40, settings={"quick": quick})
        if "knee" not in found:
            return [knee]
        turns = list(self._turns(int(found["knee"]["knee"]), quick, found))
        return [knee, *turns]

    def _turns(self, knee: int, quick: bool, found: Found) -> Iterator[Cell]:
        servers = [name for name in SERVERS if self.interpreters.get(name.split()[-1])]
        seconds = QUICK_SECONDS if quick else SECONDS
        for number in range(1, (QUICK_ROUNDS if quick else ROUNDS) + 1):
            for robots in populations(knee):
                yield from (_cell(name, robots, number, seconds) for name in servers)
        for name in servers:
            yield from _ladder(name, knee, seconds, found)

    def measure(self, cell: Cell, found: Found, folder: Path) -> Mapping[str, Any]:
        """See :class:`part.Part`."""
        if cell.key == "knee":
            return predict(folder, is_quick=cell.settings["quick"], is_fresh=False)
        folder = folder.resolve()
        seen, settings = found["knee"], cell.settings
        if not (folder / "mini-profile.json").exists():
            predict(folder, is_quick=True, is_fresh=False)
        scene = scene_file(folder, seen["precision"], max(around(int(seen["knee"]))))
        try:
            return self._turn(settings, seen, folder, scene)
        except PeerGoneError as error:  # a dead server is a result
            self._drop(settings["server"])
            return {**settings, "dead": str(error)}

    def _turn(
        self, settings: Mapping[str, Any], seen: Mapping[str, Any], folder: Path, scene: Path
    ) -> dict[str, Any]:
        way = settings["server"].split()[-1]
        address, pids = self._server(settings["server"], seen, folder)
        orders = {
            "robots": settings["robots"],
            "warm_up": WARM_UP_S,
            "seconds": settings["seconds"],
            "seed": settings["round"],
            "scene": str(scene),
            "slo_ms": SLO_MS,
        }
        clients = self._clients(folder) if way == "lerobot" else None
        before = used_s(pids)
        if clients is None:
            said = self._drive_openpi({**orders, "port": int(address), "hz": RATE_HZ}, folder)
        else:
            try:
                clients.ask(json.dumps({**orders, "server": f"127.0.0.1:{address}"}))
                said = json.loads(clients.hear(ANSWER_TIMEOUT_S))
            except PeerGoneError:
                self._drop("clients")
                raise
        after = used_s(pids)
        used = sum(after.values()) - sum(before.values())
        window = WARM_UP_S + settings["seconds"]
        return {
            **settings,
            **judged(said["robots"], is_numbered=clients is None),
            "cores": round(used / window, 4),
            "client_cores": round(said["cores"], 4),
        }

    def _drive_openpi(self, orders: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        clients = self._peer("openpi", folder, "drive", json.dumps(orders))
        try:
            return json.loads(clients.hear(ANSWER_TIMEOUT_S))
        finally:
            clients.close()

    def _server(
        self, name: str, seen: Mapping[str, Any], folder: Path
    ) -> tuple[str, Mapping[str, int]]:
        """Port and processes of a server, started if it is not up."""
        if name.startswith("takt"):
            running = self._takt.get(folder, "auto", int(seen["knee"]))
            door = running.lerobot if name.endswith("lerobot") else running.openpi
            return door.rpartition(":")[2], running.pids
        peer = self._peers.get(name)
        if peer is None or not peer.is_alive:
            self._drop(name)
            peer = self._peers[name] = self._peer(name, folder, "serve", seen["precision"])
            self._ports[name] = peer.hear(START_TIMEOUT_S)
        return self._ports[name], {name: peer.pid}

    def _clients(self, folder: Path) -> Peer:
        """The process of LeRobot's clients; it stays, as importing them takes long."""
        peer = self._peers.get("clients")
        if peer is None or not peer.is_alive:
            self._drop("clients")
            peer = self._peers["clients"] = self._peer("lerobot", folder, "drive")
            peer.hear(START_TIMEOUT_S)
        return peer

    def _peer(self, kind: str, folder: Path, *arguments: str) -> Peer:
        python = self.interpreters[kind]
        assert python is not None
        return Peer([python, str(HERE / f"_{kind}_peer.py"), *arguments], folder)

    def _drop(self, name: str) -> None:
        peer = self._peers.pop(name, None)
        if peer is not None:
            peer.close()

    def close(self) -> None:
        """End every process."""
        for name in [*self._peers]:
            self._drop(name)
        self._takt.close()

    def claims(self, found: Found) -> Sequence[Claim]:
        """See :class:`part.Part`."""
        turns = [cell for cell in found.values() if str(cell.get("server", "")).startswith("takt")]
        if not turns:
            return []
        foreign = sum(turn.get("foreign", 0) for turn in turns)
        answers = sum(turn.get("answered", 0) for turn in turns)
        text = (
            f"Behind Takt no robot got another one's chunk: {foreign} of {answers} at its openpi"
            " and LeRobot doors."
        )
        return [Claim(text=text, holds=foreign == 0 and answers > 0)]

    def section(self, found: Found) -> str:
        """See :class:`part.Part`."""
        missing = [name for name in STOCK if not self.interpreters.get(name)]
        return sections(found, missing)


def populations(knee: int) -> list[int]:
    """Where all servers are measured: at one robot, and at and around the predicted knee."""
    return sorted({1, *around(knee)})


def _cell(server: str, robots: int, number: int, seconds: float) -> Cell:
    return Cell(
        key=f"{server} at {robots}, round {number}",
        seconds=seconds + WARM_UP_S + OVERHEAD_S[server.split()[-1]],
        settings={"server": server, "robots": robots, "round": number, "seconds": seconds},
    )


def _ladder(server: str, knee: int, seconds: float, found: Found) -> Iterator[Cell]:
    """Populations 2, 4, 8 ... of a server, until one fails or the others begin."""
    robots = 2
    while robots < min(populations(knee)[1], MOST_ROBOTS):
        cell = _cell(server, robots, 1, seconds)
        yield cell
        share = answered_share(found[cell.key]) if cell.key in found else None
        if share is None or share < FAILS_BELOW:
            return
        robots *= 2


def judged(robots: Sequence[Mapping[str, Any]], *, is_numbered: bool) -> dict[str, Any]:
    """What a turn says of its server.

    Args:
        robots: By robot how often it asked, and its answers: milliseconds, and whose chunk came.
        is_numbered: Whether that is a robot's number; otherwise whether it is the robot's own.
    """
    answers = [
        [(ms, whose == number if is_numbered else bool(whose)) for ms, whose in robot["answers"]]
        for number, robot in enumerate(robots)
    ]
    issued = sum(max(robot["issued"], len(robot["answers"])) for robot in robots)
    own = [ms for each in answers for ms, is_own in each if is_own]
    within = sum(ms <= SLO_MS for ms in own)
    mixed = sum(any(not is_own for _, is_own in each) for each in answers)
    return {
        "issued": issued,
        "answered": sum(map(len, answers)),
        "within": within,
        "foreign": sum(not is_own for each in answers for _, is_own in each),
        "p50": _cut(own, 50),
        "p99": _cut(own, 99),
        "correct": sum(bool(each) and all(is_own for _, is_own in each) for each in answers),
        "mixed_up": mixed,
        "silent": sum(not each for each in answers),
        "in_time": sum(
            bool(each)
            and all(is_own for _, is_own in each)
            and sum(ms <= SLO_MS for ms, _ in each) >= FAILS_BELOW * robot["issued"]
            for each, robot in zip(answers, robots, strict=True)
        ),
    }


def _cut(values: Sequence[float], percent: int) -> float | None:
    if len(values) < 2:
        return round(values[0], 2) if values else None
    return round(statistics.quantiles(values, n=100, method="inclusive")[percent - 1], 2)


def scene_file(folder: Path, precision: Any, robots: int) -> Path:  # noqa: ANN401 - from JSON
    """The robots' observations, and the chunks that belong to them, computed in this process."""
    path = folder / f"scene-{precision}-{robots}.npz"
    if path.exists():
        return path
    policy = MiniPolicy(precision)
    recordings = load_recordings()
    images: list[Any] = []
    states: list[Any] = []
    prompts: list[str] = []
    sessions = [f"robot-{number}" for number in range(robots)]
    for number in range(robots):
        recording = recordings[number % len(recordings)]
        seen = recording.observation(number // len(recordings) * 3)
        images.append(seen.images["image"])
        states.append(np.asarray(seen.state, np.float32))
        prompts.append(recording.instruction)
    chunks = [
        policy.chunk(*observed) for observed in zip(images, states, prompts, sessions, strict=True)
    ]
    np.savez(path, images=images, states=states, prompts=prompts, sessions=sessions, chunks=chunks)
    return path


PART = StockServers()
