"""A dozen requests over two models with round numbers, the same for every formation.

::

    time alone          pi    ox          a prefix beside a denoise launch
    prefix  1 row       10     6          held to 2 of 4 units: both run at 4/5 of their speed
            2 rows      16    10          on all 4 units: it runs at full speed,
    held to 2 units                       the denoise launch at 1/2
            1 row       12     8
            2 rows      20    12
    denoise 1 row       20     8
            2 rows      22    10
            4 rows      25     -
"""

from tests.core.driving import Driver, model_of, request_of

from takt.core.profile import Profile, Work
from takt.core.request import Request, Stage
from takt.core.trace import Setup

PI = model_of("pi", slo=100, prefix=(1, 2), denoise=(1, 2, 4))
OX = model_of("ox", slo=60, prefix=(1, 2), denoise=(1, 2))

PREFIX_TIMES = {
    ("pi", 1): {4: 10, 2: 12},
    ("pi", 2): {4: 16, 2: 20},
    ("ox", 1): {4: 6, 2: 8},
    ("ox", 2): {4: 10, 2: 12},
}
DENOISE_TIMES = {("pi", 1): 20, ("pi", 2): 22, ("pi", 4): 25, ("ox", 1): 8, ("ox", 2): 10}


def profile() -> Profile:
    prefixes = {
        Work(name, Stage.PREFIX, 0, size, share): time
        for (name, size), times in PREFIX_TIMES.items()
        for share, time in times.items()
    }
    denoises = {
        Work(name, Stage.DENOISE, 0, size, 4): time for (name, size), time in DENOISE_TIMES.items()
    }
    slowdown: dict[tuple[Work, Work], float] = {}
    for prefix in prefixes:
        for denoise in denoises:
            slowdown[prefix, denoise] = 1.25 if prefix.share == 2 else 1.0
            slowdown[denoise, prefix] = 1.25 if prefix.share == 2 else 2.0
    return Profile(units=4, shares=(2, 4), solo=prefixes | denoises, slowdown=slowdown)


def dozen() -> list[Request]:
    """The requests; a promise is arrival plus slo, the latest of due and promise is on time."""
    rows = [
        # seq, model, arrival, due, expires
        (0, PI, 0, 100, 250),
        (1, PI, 0, 90, 250),
        (2, OX, 0, 50, 250),
        (3, PI, 5, 117, 250),
        (4, OX, 5, 40, 250),
        (5, OX, 20, 60, 250),
        (6, PI, 30, 95, 250),
        (7, OX, 31, 200, 250),
        (8, PI, 60, 300, 500),
        (9, PI, 61, 150, 250),
        (10, OX, 130, 70, 250),  # its robot's queue is dry
        (11, OX, 140, 141, 145),
    ]
    return [
        request_of(seq, model.name, at=at, due=due, promise=at + model.slo, expires=expires)
        for seq, model, at, due, expires in rows
    ]


def driven(formation: str) -> Driver:
    """The device once it has worked off the dozen."""
    driver = Driver(Setup(models=(PI, OX), profile=profile(), formation=formation))
    driver.run(dozen())
    return driver
