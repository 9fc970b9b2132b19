from takt.client.errors import ConnectionLostError
from takt.errors import RefusedError, TaktError


def test_a_lost_connection_is_no_refusal_and_has_a_code() -> None:
    error = ConnectionLostError("gone", code="closed")

    assert isinstance(error, TaktError)
    assert not isinstance(error, RefusedError)
    assert (str(error), error.code) == ("gone", "closed")
