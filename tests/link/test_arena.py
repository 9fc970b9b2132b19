"""Sealed, read-only for workers, nameless."""

import ctypes
import gc
import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest

from takt.errors import ConfigError, UsageError, WireError
from takt.link.arena import Arena, ArenaGeometry, ArenaView
from takt.link.layout import SlotLayout, SlotView
from takt.link.messages import SlotRef

LAYOUT = SlotLayout.of([("state", (7,), "<f4")])
GEOMETRY = ArenaGeometry(num_slots=4, slot_bytes=4096)


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena.create(GEOMETRY)
    yield made
    made.close()


def test_a_worker_sees_what_the_gateway_writes(arena: Arena) -> None:
    view = ArenaView.map(arena.fd, GEOMETRY)
    ref = SlotRef(9, 2, 1)
    writer = SlotView(arena.slot(2), LAYOUT)

    writer.stamp(ref)
    writer.put("state", np.arange(7, dtype=np.float32))

    np.testing.assert_array_equal(SlotView(view.slot(2), LAYOUT).read(ref)["state"], range(7))


def test_a_workers_arrays_are_read_only(arena: Arena) -> None:
    state = SlotView(ArenaView.map(arena.fd, GEOMETRY).slot(0), LAYOUT).full["state"]

    with pytest.raises(ValueError, match="read-only"):
        state[0] = 1


def test_the_kernel_lets_nobody_map_the_arena_writable(arena: Arena) -> None:
    with pytest.raises(PermissionError):
        mmap.mmap(arena.fd, GEOMETRY.nbytes)
    with pytest.raises(PermissionError):
        os.write(arena.fd, b"x")


def test_the_kernel_lets_no_reader_make_its_mapping_writable(arena: Arena) -> None:
    view = ArenaView.map(arena.fd, GEOMETRY)
    address = np.frombuffer(view.slot(0), np.uint8).ctypes.data
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect

    result = mprotect(ctypes.c_void_p(address), 4096, mmap.PROT_READ | mmap.PROT_WRITE)

    assert result == -1


@pytest.mark.parametrize("size", [0, GEOMETRY.nbytes * 2])
def test_the_arena_can_neither_shrink_nor_grow(arena: Arena, size: int) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(arena.fd, size)


def test_a_file_that_may_be_cut_under_the_reader_is_refused() -> None:
    fd = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, GEOMETRY.nbytes)
        with pytest.raises(WireError, match="expected seals"):
            ArenaView.map(fd, GEOMETRY)
    finally:
        os.close(fd)


def test_what_is_no_memory_file_is_refused() -> None:
    reading, writing = os.pipe()
    try:
        with pytest.raises(WireError, match="not a memory file"):
            ArenaView.map(reading, GEOMETRY)
    finally:
        os.close(reading)
        os.close(writing)


def test_a_geometry_that_is_not_the_arenas_is_refused(arena: Arena) -> None:
    with pytest.raises(WireError, match="bytes, got"):
        ArenaView.map(arena.fd, ArenaGeometry(num_slots=8, slot_bytes=4096))


@pytest.mark.parametrize("number", [-1, 4])
def test_a_slot_outside_the_arena_is_refused(arena: Arena, number: int) -> None:
    with pytest.raises(UsageError, match="the arena has 4"):
        arena.slot(number)


def test_slots_do_not_overlap(arena: Arena) -> None:
    for number in range(4):
        arena.slot(number)[:] = bytes([number + 1]) * 4096

    assert [set(arena.slot(number).tobytes()) for number in range(4)] == [{1}, {2}, {3}, {4}]


@pytest.mark.parametrize(("num_slots", "slot_bytes"), [(0, 64), (1, 0), (1, 100)])
def test_impossible_geometries_are_refused(num_slots: int, slot_bytes: int) -> None:
    with pytest.raises(ConfigError, match="arena"):
        ArenaGeometry(num_slots=num_slots, slot_bytes=slot_bytes)


def test_the_limit_is_checked_before_memory_is_taken() -> None:
    with pytest.raises(ConfigError, match="the limit is 1024"):
        ArenaGeometry(num_slots=1, slot_bytes=2048, max_bytes=1024)


def test_memory_that_is_not_there_is_refused_before_any_is_taken() -> None:
    with pytest.raises(ConfigError, match="16384 bytes of shared memory wanted, 16383 available"):
        Arena.create(GEOMETRY, available_bytes=GEOMETRY.nbytes - 1)


def test_closing_gives_descriptors_and_mappings_back() -> None:
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd"))

    arena = Arena.create(GEOMETRY)
    view = ArenaView.map(arena.fd, GEOMETRY)
    view.close()
    arena.close()

    assert sorted(os.listdir("/proc/self/fd")) == before
