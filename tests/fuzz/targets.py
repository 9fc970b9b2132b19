"""The decoders of bytes that strangers send, each with messages to begin with.

A target fails when its decoder raises anything but the refusals it promises.
"""

import contextlib
import json
import pickletools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from takt.doors.http_request import HttpError, read_request
from takt.doors.openpi_keys import read_observation
from takt.errors import ConfigError, RefusedError
from takt.gateway.decoding import with_decoded_images
from takt.policies.lerobot.documents import parse_object
from takt.policies.lerobot.tensor_file import TensorFile
from takt.schema.encoded_image import ENCODINGS, EncodedImage
from takt.schema.spec import ObservationSpec
from takt.wire.image_files import encode_image
from takt.wire.lerobot import decode_actions, decode_observation, decode_setup
from takt.wire.lerobot_messages import ObservationAssembler, decode_observation_message
from takt.wire.limits import Limits
from takt.wire.msgpack_images import spell_image
from takt.wire.openpi import decode_observation as decode_openpi
from takt.wire.openpi import decode_reply, encode_observation
from takt.wire.openpi_options import split_options

__all__ = ["TARGETS", "Target"]

GOLDEN = Path(__file__).parents[1] / "golden"
LIMITS = Limits()
CHUNK_LIMITS = Limits(max_values=65_536, max_arrays=1024)
MAX_UPLOAD_BYTES = 8 * 2**20
PICKLE_WORDS = [
    *(bytes((opcode,)) for opcode in b"(.)]}abehjlqrstuBCGJKMNQRX\x80\x81\x85\x86\x87\x88\x8a\x8c"),
    *(bytes((opcode,)) for opcode in b"\x8d\x8e\x93\x94\x95\x96\x97\x98\x82"),
    b"cos\nsystem\n",
    b"cnumpy\nndarray\n",
    b"\x8c\x05numpy\x8c\x05dtype\x93",
    b"r\xf0\xff\xff\x7f",
    b"h\x00",
]
MSGPACK_WORDS = [
    *(bytes((head,)) for head in range(0x80, 0x100, 5)),
    *(bytes((head,)) + b"\x7f\xff\xff\xff" for head in range(0xC4, 0xE0)),
    b"\xa9__ndarray__",
    b"\xa2nd\xc3",
    b"|O8",
]
IMAGE_WORDS = [
    *(bytes((0xFF, marker)) for marker in (0xC0, 0xC1, 0xC2, 0xC4, 0xDA, 0xD0, 0xD8, 0xD9)),
    *(b"IDAT", b"IEND", b"IHDR", b"acTL", b"jpeg", b"png", b"\x00\x00\x00\x00"),
]
JSON_WORDS = [b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"NaN", b"1e999", b"\\u0000", b"-"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One decoder."""

    decode: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = (RefusedError,)
    """What it may raise."""
    corpus: Callable[[], list[bytes]]
    words: tuple[bytes, ...] = ()


def golden(protocol: str, keep: Callable[[dict[str, Any]], bool]) -> list[bytes]:
    """The golden messages of a protocol that are of a kind."""
    folder = GOLDEN / protocol
    cases = json.loads((folder / "index.json").read_text())["cases"]
    return [(folder / case["file"]).read_bytes() for case in cases if keep(case)]


def of_kind(protocol: str, *kinds: str) -> Callable[[], list[bytes]]:
    """Golden messages, and the hostile ones of that protocol."""
    hostile = "lerobot_grpc" if protocol == "lerobot" else protocol
    return lambda: [
        *golden(protocol, lambda case: case["kind"] in kinds),
        *golden("hostile", lambda case: case["protocol"] == hostile),
    ]


def read_openpi(data: bytes) -> object:
    return split_options(decode_openpi(data, LIMITS).values)


def read_images(data: bytes) -> object:
    """As the door and then a thread of the gateway: every image of a message is decoded."""
    message = read_observation(decode_openpi(data, LIMITS).values, ObservationSpec())
    return with_decoded_images(message, ObservationSpec())


def image_messages() -> list[bytes]:
    """Observations with images as files, small ones so that damage hits what matters."""
    picture = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
    files = [
        EncodedImage(encoding=name, data=encode_image(picture, name), shape=(6, 8, 3))
        for name in ENCODINGS
    ]
    return [
        encode_observation({"observation/top": spell_image(file), "state": [1.0]}) for file in files
    ]


def read_openpi_reply(data: bytes) -> object:
    """As a client: binary messages, and text ones where the first byte says so."""
    message = data[1:].decode("utf-8", "replace") if data[:1] == b"\x00" else data
    return decode_reply(message, LIMITS)


def read_call(data: bytes) -> object:
    """A whole ``SendObservations`` call: messages behind their gRPC heads, joined."""
    assembler = ObservationAssembler(MAX_UPLOAD_BYTES)
    joined = None
    for message in grpc_messages(data):
        joined = assembler.add(*decode_observation_message(message)) or joined
    assembler.finish()
    return joined


def grpc_messages(data: bytes) -> Iterator[bytes]:
    while data:
        end = 5 + int.from_bytes(data[1:5], "big")
        yield data[5:end]
        data = data[end:]


def read_http_head(data: bytes) -> object:
    """The target and headers that a WebSocket library hands to the door."""
    first, *lines = data.split(b"\r\n")
    target = first.partition(b" ")[2].partition(b" ")[0]
    pairs = (line.decode("latin-1").partition(":") for line in lines)
    return read_request(target, {name: value for name, _, value in pairs})


@cache
def scratch() -> Path:
    """A file for the parser that maps files into memory."""
    return Path(tempfile.mkdtemp(prefix="takt-fuzz-")) / "model.safetensors"


def read_tensors(data: bytes) -> object:
    scratch().write_bytes(data)
    with TensorFile(scratch()) as file:
        return {name: file.raw(name) for name in file.tensors}


def files_below(folder: str, pattern: str) -> Callable[[], list[bytes]]:
    return lambda: [path.read_bytes() for path in sorted((GOLDEN / folder).rglob(pattern))]


def unframed(data: bytes) -> bytes:
    """A pickle without its frames, whose lengths would betray most damages at once."""
    with contextlib.suppress(ValueError):  # some hostile ones end early
        for opcode, _, place in reversed(list(pickletools.genops(data))):
            if opcode.name == "FRAME" and place is not None:
                data = data[:place] + data[place + 9 :]
    return data


def pickles(decode: Callable[[bytes], object], kind: str) -> Target:
    framed = of_kind("lerobot", kind)
    return Target(
        decode=decode,
        corpus=lambda: [*framed(), *map(unframed, framed())],
        words=tuple(PICKLE_WORDS),
    )


TARGETS = {
    "openpi_observation": Target(
        decode=read_openpi,
        corpus=of_kind("openpi", "observation_frame"),
        words=tuple(MSGPACK_WORDS),
    ),
    "encoded_images": Target(
        decode=read_images,
        corpus=image_messages,
        words=(*MSGPACK_WORDS, *IMAGE_WORDS),
    ),
    "openpi_reply": Target(
        decode=read_openpi_reply,
        corpus=of_kind("openpi", "reply_frame", "server_metadata", "error_text_frame"),
        words=tuple(MSGPACK_WORDS),
    ),
    "lerobot_setup": pickles(lambda data: decode_setup(data, LIMITS), "policy_setup_pickle"),
    "lerobot_observation": pickles(
        lambda data: decode_observation(data, LIMITS), "observation_pickle"
    ),
    "lerobot_actions": pickles(lambda data: decode_actions(data, CHUNK_LIMITS), "actions_pickle"),
    "lerobot_call": Target(decode=read_call, corpus=of_kind("lerobot", "send_observations_stream")),
    "http_head": Target(
        decode=read_http_head,
        refusals=(HttpError,),
        corpus=lambda: golden("openpi", lambda case: case["case"].startswith("handshake_")),
        words=(b"%00", b"%ff", b"\xff", b"&", b"=", b"?", b"//", b"[", b"://"),
    ),
    "safetensors": Target(
        decode=read_tensors,
        refusals=(ConfigError,),
        corpus=files_below("policies", "*processor.safetensors"),
        words=tuple(JSON_WORDS),
    ),
    "checkpoint_json": Target(
        decode=lambda data: parse_object(data, "config.json"),
        refusals=(ConfigError,),
        corpus=files_below("policies", "p*.json"),
        words=tuple(JSON_WORDS),
    ),
}
"""By name."""
