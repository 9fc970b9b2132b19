"""openpi's protocol on a real socket, with a real gateway and a real worker behind it."""

import hashlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.gateway_server import TIMEOUT_S, GatewayServer
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection

from takt.errors import ObservationError, RefusedError
from takt.schema.plain import spec_from_plain
from takt.wire.limits import Limits
from takt.wire.openpi import (
    decode_metadata,
    decode_observation,
    decode_reply,
    encode_observation,
)
from takt.wire.openpi_options import ErrorForm, RequestOptions

pytestmark = pytest.mark.integration

GOLDEN = Path(__file__).parents[1] / "golden"
IMAGE = np.zeros((48, 64, 3), np.uint8)
STATE = np.arange(8.0)
LIMITS = Limits()
FAIL = np.array([-31337.0, 1.0])
ECHO_OF_STATE = STATE.astype(np.float32) + np.arange(50, dtype=np.float32)[:, None]


@pytest.fixture(scope="module")
def server() -> Iterator[GatewayServer]:
    server = GatewayServer()
    yield server
    server.close()


@pytest.fixture
def client(server: GatewayServer) -> Iterator[ClientConnection]:
    with server.dial() as client:
        client.recv(TIMEOUT_S)
        yield client


def ask(
    client: ClientConnection, options: RequestOptions | None = None, **values: object
) -> dict[str, Any]:
    observation = {"observation/state": STATE, **values}
    client.send(encode_observation(observation, options))
    return answer_of(client)


def answer_of(client: ClientConnection) -> dict[str, Any]:
    return decode_reply(client.recv(TIMEOUT_S), LIMITS).values


def origin_or_code(client: ClientConnection) -> str:
    try:
        return str(answer_of(client)["actions"][0, 0])
    except RefusedError as error:
        return error.code


def assert_usable(client: ClientConnection) -> None:
    np.testing.assert_array_equal(ask(client)["actions"], ECHO_OF_STATE)


def http(server: GatewayServer, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as raw:
        raw.sendall(request)
        answer = b""
        while more := raw.recv(65536):
            answer += more
    return answer


def test_the_server_greets_with_the_models_card(server: GatewayServer) -> None:
    with server.dial() as client:
        message = client.recv(TIMEOUT_S)
        assert isinstance(message, bytes)
        card = decode_metadata(message, LIMITS)["takt"]

    assert isinstance(card, dict)
    assert (card["model"], card["models"], card["slo_ms"]) == ("echo", ["echo"], 30_000.0)
    assert spec_from_plain(card["spec"]).action.execution_horizon == 50
    assert card["takes_leftovers"] is False


def test_a_stock_client_gets_what_a_stock_server_would_send(client: ClientConnection) -> None:
    first, second = (
        ask(client, None, **{"observation/image": IMAGE, "prompt": "x"}) for _ in range(2)
    )

    np.testing.assert_array_equal(first["actions"], ECHO_OF_STATE)
    assert first.keys() == {"actions", "policy_timing", "server_timing"}
    assert first["server_timing"].keys() == {"infer_ms"}
    assert second["server_timing"].keys() == {"infer_ms", "prev_total_ms"}


def test_a_takt_client_gets_its_number_and_the_stages(client: ClientConnection) -> None:
    reply = ask(client, RequestOptions(sequence=7, wants_timing=True, robot="arm", session="run"))

    assert reply["takt"]["sequence"] == 7
    stages = reply["takt"]["stages_ms"]
    assert [*stages][:3] == ["decode", "wait", "preprocess"]
    assert sum(stages.values()) <= reply["server_timing"]["infer_ms"]


@pytest.mark.parametrize(
    "case",
    ["dialect_msgpack_numpy", "dialect_msgpack_numpy_str_keys", "dialect_str_keys",
     "dialect_vllm_legacy", "obs_libero", "obs_droid", "obs_aloha", "obs_no_prompt"],
)  # fmt: skip
def test_recorded_observations_are_answered_in_their_dialect(
    client: ClientConnection, case: str
) -> None:
    sent = (GOLDEN / "openpi" / f"{case}.bin").read_bytes()
    client.send(sent)
    answer = client.recv(TIMEOUT_S)

    assert isinstance(answer, bytes)
    asked, got = decode_observation(sent, LIMITS), decode_observation(answer, LIMITS)
    assert got.dialect is asked.dialect
    actions = got.values["actions"]
    assert isinstance(actions, np.ndarray)
    assert actions.shape[0] == 50


def test_a_recorded_session_is_served_byte_for_byte_as_it_was_sent(server: GatewayServer) -> None:
    sent = (GOLDEN / "openpi" / "tcp_short_session_client_to_server.bin").read_bytes()
    recorded = (GOLDEN / "openpi" / "tcp_short_session_server_to_client.bin").read_bytes()

    answer = http(server, sent)

    head, _, frames = answer.partition(b"\r\n\r\n")
    recorded_head = recorded.partition(b"\r\n\r\n")[0]
    accept = next(line for line in recorded_head.split(b"\r\n") if b"Accept" in line)
    assert accept.lower() in head.lower()
    assert frames.endswith(struct.pack("!BBH", 0x88, 2, 1000))


@pytest.mark.parametrize("path", ["/", "/?robot=r1", "/v1/models/echo", "/v1/models/echo?robot=7"])
def test_paths_that_lead_to_a_model(server: GatewayServer, path: str) -> None:
    with server.dial(path) as client:
        client.recv(TIMEOUT_S)
        assert_usable(client)


def test_an_unknown_model_is_refused_with_the_list(server: GatewayServer) -> None:
    with pytest.raises(InvalidStatus) as caught, server.dial("/v1/models/pi9"):
        pass

    response = caught.value.response
    assert response.status_code == 404
    assert bytes(response.body or b"") == (
        b"unknown_model: no model 'pi9' here; this server has: echo\n"
    )


def test_healthz_readyz_and_wrong_turns_are_plain_http(server: GatewayServer) -> None:
    health = http(server, (GOLDEN / "openpi" / "healthz_request.bin").read_bytes())
    assert health.startswith(b"HTTP/1.1 200 OK\r\n")
    assert health.endswith(b"\r\n\r\nOK\n")
    assert http(server, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 200")
    assert b" 404 " in http(server, b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b" 426 " in http(server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b" 400 " in http(server, b"nonsense\r\n\r\n")


@pytest.mark.parametrize(
    ("values", "key", "expected", "received"),
    [
        ({"observation/state": None}, "observation/state", "numbers", "nothing"),
        ({"observation/state": "up"}, "observation/state", "numbers", "str"),
        ({"observation/state": np.zeros(5000)}, "observation/state", "2048", "5000"),
        ({"observation/state": np.array(["a"])}, "observation/state", "real", "U1"),
        ({"observation/image": np.zeros(3, np.uint8)}, "observation/image", "image", "(3,)"),
        ({"prompt": 5}, "prompt", "text", "int"),
    ],
)
def test_a_bad_observation_is_named_and_the_connection_stays(
    client: ClientConnection, values: dict[str, Any], key: str, expected: str, received: str
) -> None:
    with pytest.raises(ObservationError) as caught:
        ask(client, RequestOptions(error_form=ErrorForm.MAP), **values)

    assert caught.value.key == key
    assert expected in caught.value.expected
    assert received in caught.value.received
    assert_usable(client)


def hostile_cases() -> list[str]:
    index = json.loads((GOLDEN / "hostile" / "index.json").read_text())
    return [case["file"] for case in index["cases"] if case["vector"] == "ws_frame"]


@pytest.mark.parametrize("file", hostile_cases())
def test_hostile_messages_get_one_sentence_and_hurt_nobody(
    server: GatewayServer, client: ClientConnection, file: str
) -> None:
    with server.dial() as neighbour:
        neighbour.recv(TIMEOUT_S)

        client.send((GOLDEN / "hostile" / file).read_bytes())
        answer = client.recv(TIMEOUT_S)

        assert isinstance(answer, str)
        assert "\n" not in answer
        assert "Traceback" not in answer
        assert_usable(neighbour)
    assert_usable(client)


def test_a_failing_inference_is_heard_of_and_the_next_one_is_served(
    client: ClientConnection,
) -> None:
    with pytest.raises(RefusedError, match="on demand") as caught:
        ask(client, None, **{"observation/state": FAIL})

    assert caught.value.code == "failed"
    assert_usable(client)


def test_a_text_message_is_refused_with_a_sentence(client: ClientConnection) -> None:
    client.send("hello")

    with pytest.raises(RefusedError, match="binary MessagePack"):
        answer_of(client)
    assert_usable(client)


def test_an_oversized_message_is_refused_before_it_is_read(client: ClientConnection) -> None:
    head = struct.pack("!BBQ", 0x82, 0x80 | 127, LIMITS.max_message_bytes + 1) + os.urandom(4)
    client.socket.sendall(head)

    with pytest.raises(ConnectionClosed) as caught:
        client.recv(TIMEOUT_S)

    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1009
    assert str(LIMITS.max_message_bytes) in caught.value.rcvd.reason


def test_fragments_are_joined_and_pings_answered_between_them(client: ClientConnection) -> None:
    message = encode_observation({"observation/state": STATE, "observation/image": IMAGE})
    thirds = [message[:100], message[100:5000], b"", message[5000:]]

    for number, part in enumerate(thirds):
        kind = Opcode.BINARY if number == 0 else Opcode.CONT
        is_last = number == len(thirds) - 1
        client.socket.sendall(Frame(kind, part, fin=is_last).serialize(mask=True))
    pong = client.ping()

    np.testing.assert_array_equal(answer_of(client)["actions"], ECHO_OF_STATE)
    assert pong.wait(TIMEOUT_S)


def test_fragments_of_two_messages_cannot_be_mixed(client: ClientConnection) -> None:
    for _ in range(2):
        client.socket.sendall(Frame(Opcode.BINARY, b"x", fin=False).serialize(mask=True))

    with pytest.raises(ConnectionClosed) as caught:
        client.recv(TIMEOUT_S)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1002


def test_a_client_that_pipelines_is_answered_in_order(client: ClientConnection) -> None:
    states = [np.full(4, value, np.float32) for value in range(200)]
    for state in states:
        client.send(encode_observation({"state": state}))

    heard = [origin_or_code(client) for _ in states]
    expected = [str(state[0]) for state in states]
    assert [h for h, e in zip(heard, expected, strict=True) if h not in {e, "superseded"}] == []
    assert heard[-1] == expected[-1]
    assert_usable(client)


def test_a_robot_that_connects_again_is_served_and_the_older_connection_told(
    server: GatewayServer,
) -> None:
    with server.dial("/?robot=arm") as older:
        older.recv(TIMEOUT_S)
        with server.dial("/?robot=arm") as newer:
            newer.recv(TIMEOUT_S)
            with pytest.raises(ConnectionClosed) as caught:
                older.recv(TIMEOUT_S)
            assert_usable(newer)

    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1008
    assert "arm" in caught.value.rcvd.reason


def test_golden_files_are_those_of_the_index() -> None:
    index = json.loads((GOLDEN / "hostile" / "index.json").read_text())
    for case in index["cases"]:
        data = (GOLDEN / "hostile" / case["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == case["sha256"]


@pytest.mark.parametrize("version", [b"7", b"8", b"12", b"x"])
def test_another_version_of_the_protocol_is_told_which_one_is_spoken(
    server: GatewayServer, version: bytes
) -> None:
    answer = http(
        server,
        b"GET / HTTP/1.1\r\nHost: takt\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: "
        + version
        + b"\r\n\r\n",
    )

    assert answer.startswith(b"HTTP/1.1 426 ")
    assert b"sec-websocket-version: 13\r\n" in answer.lower()
