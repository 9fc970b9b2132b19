"""What a GPU would do, from dimensions and data sheets, until a real one is measured.

Policies are described as dimensions, devices as rates, software as a few named stacks; a roofline
with eight fitted constants turns them into the profiles that the simulator, paced devices and
capacity plans draw on. Every time from here is modelled, not measured, and how wrong it is stands
beside it: ``takt hardware`` compares the model with every published latency it can be compared
with.

Start reading at :func:`profile_for`, then ``roofline.py``.
"""

from takt.hardware.architectures import known_architectures
from takt.hardware.calibration import DEFAULT_STACK, known_stacks
from takt.hardware.devices import known_devices
from takt.hardware.profiles import DEFAULT_INTERFERENCE, model_for, profile_for

__all__ = [
    "DEFAULT_INTERFERENCE",
    "DEFAULT_STACK",
    "known_architectures",
    "known_devices",
    "known_stacks",
    "model_for",
    "profile_for",
]
