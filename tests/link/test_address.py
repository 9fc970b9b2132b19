"""Where a worker is: names of this host, and hosts that this version does not reach."""

import pytest

from takt.errors import ConfigError
from takt.gateway.config import WorkerAddress
from takt.link.address import LinkAddress
from takt.link.listener import connect, listen
from takt.runtime.config import WorkerConfig


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        ("worker-0", "unix", "worker-0"),
        ("unix:worker-0", "unix", "worker-0"),
        ("12-ab/worker:0", "unix", "12-ab/worker:0"),
        ("tcp:gpu-host:7000", "tcp", "gpu-host:7000"),
        ("tcp:::1:7000", "tcp", "::1:7000"),
    ],
)
def test_an_address_says_how_its_place_is_reached(text: str, kind: str, place: str) -> None:
    assert LinkAddress.parse(text) == (kind, place)


@pytest.mark.parametrize("text", ["", "unix:", "tcp:", "tcp:host", "tcp::7000", "tcp:host:99999"])
def test_an_address_that_leads_nowhere_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        LinkAddress.parse(text)


def test_a_name_with_and_without_its_kind_is_one_address() -> None:
    assert LinkAddress.parse("unix:w").on_this_host() == LinkAddress.parse("w").on_this_host()


def test_another_host_is_refused_with_a_sentence_wherever_it_is_named() -> None:
    address = "tcp:gpu-host:7000"

    for refuse in (
        lambda: listen(address),
        lambda: connect(address),
        lambda: WorkerAddress(name="w", address=address),
        lambda: WorkerConfig(name="w", address=address, models=()),
    ):
        with pytest.raises(ConfigError, match=r"'tcp:gpu-host:7000'.*one host only"):
            refuse()
