"""Which models a gateway has: those that open, and those that come and go while it runs."""

import pytest
from tests.gateway.doubles import ECHO, Bench, observe, session_of, settled

from takt.errors import ConfigError, RefusedError
from takt.gateway.gateway import Gateway
from takt.gateway.models import open_each, open_model
from takt.schema.serving import ServedModel

MISSPELT = ServedModel(name="odd", policy="ehco")
OTHER = ServedModel(name="other", policy="echo")
LARGE = ServedModel(name="large", policy="mini")


def test_models_that_cannot_be_opened_keep_no_other_from_being_served() -> None:
    opened, failed = open_each([MISSPELT, ECHO])

    assert [*opened] == ["echo"]
    assert "no policy 'ehco'" in failed["odd"]


def test_a_gateway_that_can_open_nothing_does_not_start() -> None:
    with pytest.raises(ConfigError, match="no policy 'ehco'"):
        open_each([MISSPELT])


def test_a_model_that_could_not_be_opened_is_listed_and_refused_with_the_reason() -> None:
    bench = Bench()

    async def main(gateway: Gateway) -> None:
        assert gateway.models == ("echo", "odd")
        assert gateway.readiness("odd").state == "failed"
        with pytest.raises(RefusedError, match="no policy 'ehco'") as caught:
            gateway.spec("odd")
        assert caught.value.code == "failed"
        assert bench.events[0][0] == "model_failed"
        assert ("ready", {"models": ["echo"]}) in bench.events

    bench.run(main, models=(ECHO, MISSPELT))


def test_a_model_comes_and_goes_while_the_gateway_runs() -> None:
    bench = Bench()

    async def main(gateway: Gateway) -> None:
        gateway.add_model(open_model(OTHER))
        assert gateway.models == ("echo", "other")

        gateway.remove_model("other")

        with pytest.raises(RefusedError) as caught:
            session_of(gateway).infer("other", observe(), arrival=bench.now)
        assert caught.value.code == "unknown_model"
        gateway.remove_model("other")  # nothing happens

    bench.run(main)


def test_a_request_under_way_outlives_its_model() -> None:
    bench = Bench(answers=False)

    async def main(gateway: Gateway) -> None:
        answer = session_of(gateway).infer("echo", observe(4.0), arrival=bench.now)
        await settled()

        gateway.remove_model("echo")
        worker = bench.workers["w0"]
        worker.serve(worker.submits[0])
        await settled()

        assert answer.result().actions[0, 0] == 4.0

    bench.run(main, models=(OTHER, ECHO))


@pytest.mark.parametrize(
    ("served", "says"),
    [(ECHO, "there is a model 'echo'"), (LARGE, r"takes \d+ bytes, a slot has \d+")],
)
def test_a_model_that_does_not_fit_in_is_refused(served: ServedModel, says: str) -> None:
    async def main(gateway: Gateway) -> None:
        with pytest.raises(ConfigError, match=says):
            gateway.add_model(open_model(served))

    Bench().run(main)


def test_room_for_larger_rows_can_be_kept() -> None:
    async def main(gateway: Gateway) -> None:
        gateway.add_model(open_model(LARGE))

        assert "large" in gateway.models

    Bench().run(main, reserved_row_bytes=1 << 20)


def test_the_default_stays() -> None:
    async def main(gateway: Gateway) -> None:
        with pytest.raises(ConfigError, match="robots get that name none"):
            gateway.remove_model("echo")

    Bench().run(main)
