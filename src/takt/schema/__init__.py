"""What robots, gateways and workers say to each other: observations, chunks and policy specs.

NumPy only, so that a robot computer can import it. Start reading at
:class:`takt.schema.spec.PolicySpec`.
"""

from takt.schema.chunk import ActionChunk
from takt.schema.observation import Observation
from takt.schema.row import Chunking, Executing, Row, RowHeader, RowRequest
from takt.schema.spec import (
    ActionSpec,
    AxisSpec,
    CameraSpec,
    LayoutSpec,
    ObservationSpec,
    PolicySpec,
    TensorSpec,
)

__all__ = [
    "ActionChunk",
    "ActionSpec",
    "AxisSpec",
    "CameraSpec",
    "Chunking",
    "Executing",
    "LayoutSpec",
    "Observation",
    "ObservationSpec",
    "PolicySpec",
    "Row",
    "RowHeader",
    "RowRequest",
    "TensorSpec",
]
