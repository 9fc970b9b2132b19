"""The noise a flow policy starts from: a function of who asked, and of nothing else.

A chunk therefore does not depend on the batch its request ran in, on the worker, or on what was
served before, and any chunk can be computed again from the log.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["noise_for"]


def noise_for(
    seed: int, session: str, sequence: int, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """Standard normal noise for one request.

    Args:
        seed: The server's seed.
        session: Session of the request.
        sequence: Number of the observation within its session.
        shape: Usually ``(horizon, model_action_dim)``.

    Returns:
        Float32 of ``shape``. The same arguments give the same numbers on every machine with the
        same NumPy stream.
    """
    # The numbers hold no NUL, so no two keys have the same text, whatever the session is called.
    text = f"{seed}\0{sequence}\0{session}".encode("utf-8", "surrogatepass")
    key = int.from_bytes(
        hashlib.blake2b(text, digest_size=16, person=b"takt noise").digest(), "big"
    )
    return np.random.Generator(np.random.Philox(key=key)).standard_normal(shape, dtype=np.float32)
