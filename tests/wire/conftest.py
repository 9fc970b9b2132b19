"""The canonical description of decoded values that ``tests/golden/README.md`` defines."""

import hashlib
import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Describe: TypeAlias = Callable[[object], Json]
LONG_TEXT = 2000


@pytest.fixture(scope="session")
def describe() -> Describe:
    """Turns decoded values into what an index writes under ``expect``."""
    return describe_value


def describe_value(value: object) -> Json:
    if isinstance(value, np.ndarray):
        content = np.ascontiguousarray(value).tobytes()
        shape: list[Json] = list(value.shape)
        return {"$": "ndarray", "dtype": value.dtype.str, "shape": shape, "sha256": digest(content)}
    if isinstance(value, np.generic):
        return {"$": "npscalar", "dtype": value.dtype.str, "value": describe_value(value.item())}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$": "float", "value": str(value)}
    if isinstance(value, bytes):
        return {"$": "bytes", "len": len(value), "sha256": digest(value)}
    if isinstance(value, str) and len(value) > LONG_TEXT:
        return {"$": "str", "chars": len(value), "sha256": digest(value.encode())}
    return describe_compound(value)


def describe_compound(value: object) -> Json:
    if isinstance(value, list):
        return [describe_value(inner) for inner in value]
    if isinstance(value, dict):
        return {str(key): describe_value(inner) for key, inner in value.items()}
    assert value is None or isinstance(value, (bool, int, float, str)), type(value)
    return value


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
