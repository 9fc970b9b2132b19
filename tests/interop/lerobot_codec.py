"""Do LeRobot's own classes read what Takt writes, and Takt what they write?

Run it with the Python of an environment that has LeRobot; Takt's codec needs numpy alone:

    PYTHONPATH=src LEROBOT_ENV/bin/python tests/interop/lerobot_codec.py

Prints what was checked and exits with 1 at the first difference.
"""

import pickle  # noqa: TID251 - what a stock client does with our replies
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np

from takt.wire.lerobot import (
    MAX_REPLY_BYTES,
    decode_actions,
    decode_observation,
    decode_setup,
    encode_actions,
    encode_observation,
    encode_setup,
)
from takt.wire.lerobot_objects import Spelling
from takt.wire.limits import Limits

LIMITS = Limits(max_values=65_536, max_arrays=1024)
helpers: Any = import_module("lerobot.async_inference.helpers")
torch: Any = import_module("torch")
STATE = {"dtype": "float32", "shape": (2,), "names": ["a.pos", "b.pos"]}


def load(data: bytes) -> Any:  # noqa: ANN401
    return pickle.loads(data)  # noqa: S301 - bytes of our own


def check_reply(rows: int, width: int) -> str:
    actions = np.random.default_rng(rows).normal(size=(rows, width)).astype(np.float32)
    data = encode_actions(
        actions,
        first_timestep=40,
        first_timestamp=100.0,
        period_s=1 / 30,
        spelling=Spelling.ASYNC_INFERENCE,
    )
    timed = load(data)

    assert len(data) < MAX_REPLY_BYTES
    assert all(type(one) is helpers.TimedAction for one in timed)
    assert [one.get_timestep() for one in timed] == list(range(40, 40 + rows))
    assert all(one.get_action().device.type == "cpu" for one in timed)
    assert torch.equal(torch.stack([one.get_action() for one in timed]), torch.tensor(actions))
    return f"{rows} x {width} in {len(data)} bytes"


def check_stock_chunk() -> str:
    chunk = torch.arange(12, dtype=torch.float32).reshape(4, 3)
    timed = [
        helpers.TimedAction(timestamp=0.5, timestep=row, action=action)
        for row, action in enumerate(chunk)
    ]

    found = decode_actions(pickle.dumps(timed), LIMITS)

    np.testing.assert_array_equal(found.actions, chunk.numpy())
    return "a chunk of the stock server"


def check_setup() -> str:
    stock = helpers.RemotePolicyConfig("act", "echo", {"observation.state": STATE}, 50)

    setup = decode_setup(pickle.dumps(stock), LIMITS)

    assert load(encode_setup(setup)) == stock
    return "a setup in both directions"


def check_observation() -> str:
    values = {"a.pos": 1.5, "front": np.ones((4, 5, 3), np.uint8), "task": "fold"}
    stock = helpers.TimedObservation(timestamp=0.5, timestep=3, observation=values, must_go=True)

    again = load(encode_observation(decode_observation(pickle.dumps(stock), LIMITS)))

    assert (again.timestamp, again.timestep, again.must_go) == (0.5, 3, True)
    assert again.observation.keys() == values.keys()
    np.testing.assert_array_equal(again.observation["front"], values["front"])
    return "an observation in both directions"


def main() -> None:
    replies = [check_reply(rows, width) for rows, width in ((1, 1), (50, 6), (200, 32), (1000, 32))]
    checked = [*replies, check_stock_chunk(), check_setup(), check_observation()]
    stated = f"lerobot {version('lerobot')}, torch {version('torch')}, numpy {version('numpy')}"
    sys.stdout.write("\n".join([stated, *checked, ""]))


if __name__ == "__main__":
    main()
