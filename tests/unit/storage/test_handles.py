from __future__ import annotations

import os
from pathlib import Path

import pytest

from braidlog.core.slices import FileSlice
from braidlog.storage.files import OsFiles
from braidlog.storage.handles import Handle, HandlePool, capacity_from_limit


def handles(pool: HandlePool, root: Path, count: int) -> list[Handle]:
    return [pool.handle(f"{root}/{number}") for number in range(count)]


def test_no_more_files_are_open_than_the_capacity(tmp_path: Path) -> None:
    pool = HandlePool(OsFiles(), capacity=3)
    known = handles(pool, tmp_path, 10)
    for number, handle in enumerate(known):
        handle.get().writev([b"%d" % number])
        assert pool.open_count <= 3
    assert pool.evictions == 7
    assert [handle.get().pread(9, 0) for handle in known] == [b"%d" % number for number in range(10)]


def test_a_file_in_use_since_the_hand_passed_stays_open(tmp_path: Path) -> None:
    pool = HandlePool(OsFiles(), capacity=3)
    known = handles(pool, tmp_path, 8)
    busy = known[0]
    opened = busy.get()
    for handle in known[1:]:
        handle.get()
        assert busy.get() is opened
    assert busy.file is opened


def test_an_evicted_file_stays_readable_for_those_who_hold_it(tmp_path: Path) -> None:
    pool = HandlePool(OsFiles(), capacity=1)
    first, second = handles(pool, tmp_path, 2)
    first.get().writev([b"hello"])
    held = FileSlice(first.get(), 1, 3)
    second.get()
    assert first.file is None
    os.unlink(first.path)
    assert held.read() == b"ell"


def test_a_renamed_file_is_opened_under_its_new_name(tmp_path: Path) -> None:
    pool = HandlePool(OsFiles(), capacity=4)
    handle = pool.handle(f"{tmp_path}/old")
    handle.get().writev([b"1"])
    os.rename(handle.path, f"{tmp_path}/new")
    handle.path = f"{tmp_path}/new"
    handle.release()
    handle.release()
    assert pool.open_count == 0
    assert handle.get().pread(1, 0) == b"1"


def test_a_handle_for_reading_does_not_create_its_file(tmp_path: Path) -> None:
    pool = HandlePool(OsFiles())
    with pytest.raises(FileNotFoundError):
        pool.handle(f"{tmp_path}/none", appendable=False).get()
    assert pool.open_count == 0


def test_the_default_capacity_leaves_descriptors_for_connections() -> None:
    resource = pytest.importorskip("resource")
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert capacity_from_limit() >= 64
    if soft >= 128:
        assert capacity_from_limit() <= soft // 2


def test_a_forgotten_file_is_not_brought_back(tmp_path: Path) -> None:
    pool = HandlePool(OsFiles())
    handle = pool.handle(f"{tmp_path}/a")
    held = handle.get()
    held.writev([b"1"])
    handle.forget()
    os.unlink(handle.path)
    with pytest.raises(FileNotFoundError):
        handle.get()
    assert os.listdir(tmp_path) == []
    assert held.pread(1, 0) == b"1"
