"""Images as files on a real socket, through a real gateway and worker with a real policy."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.integration.gateway_server import TIMEOUT_S, GatewayServer
from tests.wire.pictures import natural, red
from websockets.sync.client import ClientConnection

from takt.client import BackgroundClient, Connection, ImageSettings, connect
from takt.client.image_settings import SendImages
from takt.errors import ObservationError, RefusedError
from takt.policies.mini.replay import load_recordings
from takt.schema.encoded_image import EncodedImage
from takt.wire.image_files import encode_image
from takt.wire.limits import Limits
from takt.wire.msgpack_images import spell_image
from takt.wire.openpi import decode_reply, encode_observation

pytestmark = pytest.mark.integration

LOSSLESS: tuple[SendImages, ...] = ("as_given", "resized", "png")
PICTURE = natural(480, 640)
RECORDED = load_recordings()[0].observation(3)
STATE = np.arange(8.0)


@pytest.fixture(scope="module")
def echo() -> Iterator[GatewayServer]:
    server = GatewayServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def mini() -> Iterator[GatewayServer]:
    server = GatewayServer(policy="mini", slo_ms=60_000.0, ready_s=90.0)
    yield server
    server.close()


def observe(picture: np.ndarray = PICTURE) -> dict[str, Any]:
    return {
        "observation/image": picture,
        "observation/state": RECORDED.state,
        "prompt": RECORDED.prompt,
    }


def asked(server: GatewayServer, images: SendImages | ImageSettings) -> Any:  # noqa: ANN401
    """The first answer to a robot, whose noise therefore is always the same."""
    with connect(f"127.0.0.1:{server.port}", robot="arm", images=images) as connection:
        return connection.infer(observe())


def test_without_loss_the_answer_is_the_same_to_the_last_bit(mini: GatewayServer) -> None:
    answers = [asked(mini, images) for images in LOSSLESS]

    for answer in answers[1:]:
        np.testing.assert_array_equal(answer.actions, answers[0].actions)
        assert answer.sent_bytes < answers[0].sent_bytes / 20
        assert abs(answer.raw_bytes - answers[0].sent_bytes) < 200


def test_a_jpeg_costs_few_bytes_and_moves_the_answer_little(mini: GatewayServer) -> None:
    raw, jpeg = asked(mini, "as_given"), asked(mini, ImageSettings(send="jpeg", jpeg_quality=100))

    assert jpeg.sent_bytes < raw.sent_bytes / 20
    assert 0 < np.abs(jpeg.actions - raw.actions).max() < 0.2


def test_the_server_says_what_it_does_to_images(mini: GatewayServer) -> None:
    with connect(f"127.0.0.1:{mini.port}", images="png") as connection:
        spec = connection.spec
        assert spec is not None
        (camera,) = spec.observation.cameras
        assert (camera.height, camera.width, camera.robot_may_resize) == (112, 112, True)
        assert connection.images.encoding == "png"
        assert connection.images.resized == {"image": camera}
        assert connection.images.refusals == ()


@pytest.mark.parametrize("images", ["as_given", "png", "jpeg"])
def test_a_model_without_cameras_takes_any_image(echo: GatewayServer, images: SendImages) -> None:
    with connect(f"127.0.0.1:{echo.port}", images=images) as connection:
        values = {"front": red(480, 640), "observation/state": STATE}
        answer = connection.infer(values)

    np.testing.assert_array_equal(answer.actions[0], STATE)
    assert (answer.sent_bytes < 50_000) == (images != "as_given")


def test_a_robot_that_never_waits_shows_its_bytes(mini: GatewayServer) -> None:
    def dial() -> Connection:
        return connect(f"127.0.0.1:{mini.port}", images="jpeg")

    pause = threading.Event()
    with BackgroundClient(dial, control_hz=1000) as client:
        client.observe(observe())
        while not client.status().answered:
            pause.wait(0.001)

    status = client.status()
    assert 0 < status.sent_bytes < status.raw_bytes / 20


FILE = encode_image(PICTURE, "jpeg")
PNG = encode_image(PICTURE, "png")


def spelled(data: bytes = FILE, **other: object) -> dict[str, object]:
    image = EncodedImage(encoding="jpeg", data=data, shape=(480, 640, 3))
    return {**spell_image(image), **other}


def ask(client: ClientConnection, image: object) -> dict[str, Any]:
    client.send(encode_observation({"observation/image": image, "observation/state": STATE}))
    return decode_reply(client.recv(TIMEOUT_S), Limits()).values


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (spelled(FILE[: len(FILE) // 2]), "expected a whole JPEG file, got one without its end"),
        (spelled(shape=[240, 320, 3]), "as announced, got one of \\(480, 640, 3\\)"),
        (spelled(PNG), "expected a JPEG file, got bytes that begin with 89504e47"),
        (spelled(PNG[:-9], format="png"), "expected a whole PNG file"),
        (spelled(format="gif"), "expected an image of format jpeg or png, got 'gif'"),
        (spelled(shape=[100_000, 100_000, 3]), r"sides of 1\.\.8192 pixels"),
        (spelled(shape=[8192, 8192, 3]), "array elements"),
        (spelled(b""), "got 0 bytes"),
        (spelled(FILE[: FILE.index(b"\xff\xda") + 14] + b"\x00" * 9 + b"\xff\xd9"), "damaged"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:24],
)
def test_a_hostile_image_is_refused_and_the_connection_serves_on(
    echo: GatewayServer, image: object, words: str
) -> None:
    with echo.dial() as client:
        client.recv(TIMEOUT_S)
        with pytest.raises(RefusedError, match=words) as caught:
            ask(client, image)

        assert caught.value.code in {"observation", "limit"}
        np.testing.assert_array_equal(ask(client, spelled())["actions"][0], STATE)


def test_arrays_and_files_of_every_kind_travel_in_one_observation(echo: GatewayServer) -> None:
    values = {
        "left": PICTURE,
        "right": spelled(),
        "images": {"top": spelled(PNG, format="png")},
        "observation/state": STATE,
    }
    with echo.dial() as client:
        client.recv(TIMEOUT_S)
        client.send(encode_observation(values))
        reply: dict[str, Any] = decode_reply(client.recv(TIMEOUT_S), Limits()).values

    np.testing.assert_array_equal(reply["actions"][0], STATE)


def test_a_robot_whose_files_are_costly_or_broken_leaves_another_untouched(
    echo: GatewayServer,
) -> None:
    large = np.zeros((2048, 2048, 3), np.uint8)
    costly = spelled(encode_image(large, "png"), format="png", shape=[*large.shape])
    cut = spelled(PNG[:-9], format="png")
    with echo.dial() as greedy, echo.dial() as modest:
        for client in (greedy, modest):
            client.recv(TIMEOUT_S)
        for image in (costly, cut, costly, cut):
            greedy.send(encode_observation({"top": image, "observation/state": STATE}))
        np.testing.assert_array_equal(ask(modest, spelled())["actions"][0], STATE)
        replies = [greedy.recv(TIMEOUT_S) for _ in range(4)]

        np.testing.assert_array_equal(ask(greedy, spelled())["actions"][0], STATE)

    broken = [reply for reply in replies if isinstance(reply, str)]
    assert all("top: expected a whole PNG" in reply for reply in broken)
    assert len(broken) == 2


def test_the_error_names_the_key_to_a_client_that_wants_it(mini: GatewayServer) -> None:
    broken = {**observe(), "observation/image": spelled(FILE[:-2])}
    with connect(f"127.0.0.1:{mini.port}") as connection:
        with pytest.raises(ObservationError) as caught:
            connection.infer(broken)

        assert caught.value.key == "observation/image"
        assert connection.infer(observe()).actions.size
