import pytest

from takt.client.address import server_address
from takt.errors import UsageError


@pytest.mark.parametrize(
    ("address", "url", "host", "port"),
    [
        ("robot-server", "ws://robot-server:8000/", "robot-server", 8000),
        ("10.0.0.7:9000", "ws://10.0.0.7:9000/", "10.0.0.7", 9000),
        ("[::1]:8000", "ws://[::1]:8000/", "::1", 8000),
        ("ws://server", "ws://server:80/", "server", 80),
        ("wss://server/pi0?site=a", "wss://server:443/pi0?site=a", "server", 443),
        ("ws://server:8001/v1/models/echo", "ws://server:8001/v1/models/echo", "server", 8001),
    ],
)
def test_an_address_becomes_a_url_with_a_port(address: str, url: str, host: str, port: int) -> None:
    found = server_address(address)

    assert (found.url, found.host, found.port) == (url, host, port)


def test_the_model_is_named_by_the_path_and_the_robot_by_the_query() -> None:
    found = server_address("server:8000", model="pi0/fold v2", robot="arm 7&8")

    assert found.url == "ws://server:8000/v1/models/pi0%2Ffold%20v2?robot=arm+7%268"


def test_a_robot_joins_the_query_that_a_url_has() -> None:
    found = server_address("ws://server:1/?a=b", robot="arm")

    assert found.url == "ws://server:1/?a=b&robot=arm"


def test_a_url_that_names_a_model_leaves_no_room_for_another() -> None:
    with pytest.raises(UsageError, match="has a path already; leave out model 'pi0'"):
        server_address("ws://server:1/v1/models/act", model="pi0")


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":8000",
        "http://server:8000",
        "server:port",
        "server:99999",
        "server:0",
        "8000",
        "10.0.7",
        "300.1.1.1:8000",
        "server:80 ",
        "server\t:80",
        "[::1",
        "two words",
        "line\r\nbreak:80",
        "ws://user:secret@server:1",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError) as refused:
        server_address(address, called="--server")

    assert str(refused.value) == (
        f"--server {address!r}: expected host:port, such as 127.0.0.1:8000,"
        " or a ws:// or wss:// URL"
    )


def test_an_address_is_shown_with_its_port() -> None:
    assert str(server_address("ws://[fe80::1]")) == "[fe80::1]:80"
