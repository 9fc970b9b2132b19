"""Paths and queries are read as the client meant them, or refused."""

import pytest

from takt.doors.http_request import HttpError, read_request


def test_path_query_and_headers_are_taken_apart() -> None:
    request = read_request(b"/v1/models/pi0%205?robot=7&robot=8&empty=", {"Upgrade": "WebSocket "})

    assert request.path == "/v1/models/pi0 5"
    assert request.query == {"robot": "8", "empty": ""}
    assert request.is_upgrade


def test_no_path_is_the_root() -> None:
    assert read_request(b"?robot=7", {}).path == "/"


@pytest.mark.parametrize("target", [b"/\xff", b"/?" + b"a=1&" * 33, b"//[bad"])
def test_a_target_that_is_none_is_refused(target: bytes) -> None:
    with pytest.raises(HttpError) as caught:
        read_request(target, {})

    assert caught.value.status == 400
