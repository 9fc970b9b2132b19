"""Tokens keep strangers out, and no door opens to the network without one."""

import pytest

from takt.doors.access import Access, AllowedNetworks, check_exposure, check_open_exposure
from takt.doors.http_request import HttpError
from takt.errors import ConfigError


@pytest.mark.parametrize("header", ["Api-Key s3cret", "Bearer s3cret", "api-key  s3cret "])
def test_the_right_token_opens(header: str) -> None:
    Access("s3cret").check({"authorization": header})


@pytest.mark.parametrize(
    "header",
    ["", "Api-Key", "Api-Key s3cre", "Api-Key s3cretX", "Basic s3cret", "s3cret", "Bearer \xff"],
)
def test_any_other_is_refused_without_repeating_it(header: str) -> None:
    with pytest.raises(HttpError, match=r"^unauthorized: ") as caught:
        Access("s3cret").check({"authorization": header} if header else {})

    assert caught.value.status == 401
    assert "s3cre" not in caught.value.sentence


def test_without_a_token_everybody_may_come_in() -> None:
    Access(None).check({})


@pytest.mark.parametrize("token", ["", "nul\0", "naïve"])
def test_an_impossible_token_is_refused_at_the_start(token: str) -> None:
    with pytest.raises(ConfigError, match="token"):
        Access(token)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    check_exposure(host, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", ""])
def test_any_other_address_needs_one(host: str) -> None:
    with pytest.raises(ConfigError, match="give a token"):
        check_exposure(host, None)
    check_exposure(host, "s3cret")


@pytest.mark.parametrize(
    ("address", "is_admitted"),
    [
        ("10.0.0.7", True),
        ("10.0.1.7", False),
        ("::ffff:10.0.0.7", True),
        ("fd00::1", True),
        ("fe80::1", False),
        ("127.0.0.1", True),
        ("::1", True),
        ("", False),
        ("somewhere", False),
    ],
)
def test_networks_admit_their_own_addresses_and_this_host(address: str, is_admitted: bool) -> None:
    networks = AllowedNetworks(["10.0.0.0/24", "fd00::/8"])

    assert networks.admits(address) is is_admitted


@pytest.mark.parametrize("text", ["10.0.0.7/24", "everybody", ""])
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--allow-from"):
        AllowedNetworks([text])


def test_a_door_without_tokens_needs_networks_where_others_reach_it() -> None:
    check_open_exposure("127.0.0.1", AllowedNetworks([]), door="lerobot")

    with pytest.raises(ConfigError, match=r"cannot carry a token.*--allow-from lerobot="):
        check_open_exposure("0.0.0.0", AllowedNetworks([]), door="lerobot")


def test_networks_in_place_of_a_token_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    check_open_exposure("0.0.0.0", AllowedNetworks(["10.0.0.0/24"]), door="lerobot")

    assert "door without a token: door=lerobot" in caplog.text
