"""A batch fills a captured shape, and hopeless requests take only what nobody else can use."""

from tests.core.driving import UNITS, model_of, profile_of, request_of

from takt.core.batching import Batch, View, largest_work, next_batch, whole_batch
from takt.core.disciplines import earliest_deadline
from takt.core.launch import Lane
from takt.core.model import Model
from takt.core.profile import Work
from takt.core.queue import Queue
from takt.core.request import Stage


def view_of(*queues: Queue) -> View:
    """A device whose prefix lane has these queues and whose denoise lane has none."""
    return View(
        profile=profile_of(*(queue.model for queue in queues)),
        discipline=earliest_deadline,
        queues=(queues, ()),
    )


def queue_of(
    model: Model, first: int, *, feasible: tuple[int, ...] = (), hopeless: tuple[int, ...] = ()
) -> Queue:
    """A queue of requests with these dues, numbered from ``first``, the feasible ones first."""
    queue = Queue(model, Stage.PREFIX)
    for seq, due in enumerate(feasible + hopeless, first):
        request = request_of(seq, model.name, due=due)
        queue.add(request)
        if seq >= first + len(feasible):
            queue.yield_place(request)
    return queue


def rows(batch: Batch | None) -> list[int]:
    return [] if batch is None else [*batch.requests]


def test_there_is_no_batch_when_nobody_waits() -> None:
    view = view_of(queue_of(model_of(), 0))

    assert next_batch(view, Stage.PREFIX) is None
    assert whole_batch(view, Stage.PREFIX) is None
    assert next_batch(view, Stage.DENOISE) is None


def test_the_next_batch_is_the_largest_captured_size_that_fills() -> None:
    batch = next_batch(view_of(queue_of(model_of(), 0, feasible=(30, 10, 20))), Stage.PREFIX)

    assert batch is not None
    assert (rows(batch), batch.size) == ([1, 2], 2)


def test_the_whole_batch_is_padded_to_the_next_captured_size() -> None:
    batch = whole_batch(view_of(queue_of(model_of(), 0, feasible=(30, 10, 20))), Stage.PREFIX)

    assert batch is not None
    assert (rows(batch), batch.size) == ([1, 2, 0], 4)


def test_fewer_than_the_smallest_captured_size_are_padded() -> None:
    queue = queue_of(model_of(prefix=(2, 4)), 0, feasible=(10,))

    batch = next_batch(view_of(queue), Stage.PREFIX)

    assert batch is not None
    assert (rows(batch), batch.size) == ([0], 2)


def test_more_than_the_largest_captured_size_leaves_the_later_ones_waiting() -> None:
    queue = queue_of(model_of(prefix=(1, 2)), 0, feasible=(10, 20, 30))

    assert rows(next_batch(view_of(queue), Stage.PREFIX)) == [0, 1]
    assert rows(whole_batch(view_of(queue), Stage.PREFIX)) == [0, 1]


def test_a_launch_runs_the_cheapest_layout_that_holds_the_rows_it_takes() -> None:
    queue = Queue(model_of(prefix=(2,), holds=(0b111, 0b110, 0b100)), Stage.PREFIX)
    for seq, layout in enumerate((0, 1, 2)):
        queue.add(request_of(seq, due=seq, layout=layout))

    batch = next_batch(view_of(queue), Stage.PREFIX)

    assert batch is not None
    assert (rows(batch), batch.layout) == ([0, 1], 1)  # the row of layout 2 stays behind


def test_hopeless_requests_fill_a_batch_when_no_other_model_waits() -> None:
    queue = queue_of(model_of(), 0, feasible=(50,), hopeless=(10, 20, 30))

    assert rows(next_batch(view_of(queue), Stage.PREFIX)) == [0, 1, 2, 3]


def test_hopeless_requests_do_not_enlarge_a_batch_that_another_model_waits_for() -> None:
    late = queue_of(model_of("late"), 0, feasible=(50,), hopeless=(10, 20, 30))
    other = queue_of(model_of("other"), 4, feasible=(60,))

    assert rows(next_batch(view_of(late, other), Stage.PREFIX)) == [0]
    assert rows(whole_batch(view_of(late, other), Stage.PREFIX)) == [0]


def test_a_feasible_request_goes_before_any_hopeless_one_however_early() -> None:
    late = queue_of(model_of("late"), 0, hopeless=(10, 20))
    other = queue_of(model_of("other"), 2, feasible=(900,))

    assert rows(next_batch(view_of(late, other), Stage.PREFIX)) == [2]


def test_of_hopeless_queues_the_earliest_due_goes_first() -> None:
    one = queue_of(model_of("one"), 0, hopeless=(30, 40))
    two = queue_of(model_of("two"), 2, hopeless=(20,))

    assert rows(next_batch(view_of(one, two), Stage.PREFIX)) == [2]
    assert rows(next_batch(view_of(one), Stage.PREFIX)) == [0, 1]


def test_the_discipline_decides_between_queues_with_feasible_requests() -> None:
    queues = (
        queue_of(model_of("one"), 0, feasible=(30,)),
        queue_of(model_of("two"), 1, feasible=(20,)),
    )
    view = view_of(*queues)
    view.discipline = lambda queue: -queue.feasible[0][0]

    assert rows(next_batch(view, Stage.PREFIX)) == [0]


def test_a_batch_becomes_a_launch_on_the_lane_of_its_stage() -> None:
    batch = next_batch(view_of(queue_of(model_of(), 0, feasible=(10, 20))), Stage.PREFIX)
    assert batch is not None

    launch = batch.launch(2, device=3)

    assert launch.lane == Lane(3, Stage.PREFIX)
    assert (launch.requests, launch.size, launch.share) == ((0, 1), 2, 2)
    assert launch.work("pi0") == batch.work(2) == Work("pi0", Stage.PREFIX, 0, 2, 2)


def test_the_largest_work_is_the_largest_size_in_the_cheapest_layout_that_holds_the_row() -> None:
    model = model_of(denoise=(1, 8), holds=(0b111, 0b111, 0b100))

    works = [largest_work(model, Stage.DENOISE, layout, UNITS) for layout in range(3)]

    assert [work.layout for work in works] == [0, 0, 2]
    assert works[0] == Work("pi0", Stage.DENOISE, 0, 8, UNITS)
