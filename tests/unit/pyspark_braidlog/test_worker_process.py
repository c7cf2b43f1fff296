"""What makes a task's Python process quick: no garbage collection among imports, no waiting for acknowledgements."""

from __future__ import annotations

import gc
import pickle
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import closing
from types import ModuleType, SimpleNamespace

import pytest

from pyspark_braidlog import worker_process
from pyspark_braidlog.worker_process import SentToWorkers, acknowledge, freeze_imports
from support.eventually import eventually

# Of the kernel's tcp_info: eight small fields, then rto, ato, snd_mss, rcv_mss, unacked.
_UNACKED = struct.Struct("24xI")


@pytest.fixture
def unfrozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_process, "_modules_frozen", 0)
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.fixture
def in_a_worker(unfrozen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name="pyspark.daemon"))


def test_what_is_imported_is_taken_from_the_collector_once(in_a_worker: None, monkeypatch: pytest.MonkeyPatch) -> None:
    freeze_imports()
    first = gc.get_freeze_count()
    assert first > 1000
    kept = [[] for _ in range(100)]
    freeze_imports()
    assert gc.get_freeze_count() <= first
    monkeypatch.setitem(sys.modules, "a_module_of_the_next_task", ModuleType("a_module_of_the_next_task"))
    freeze_imports()
    assert gc.get_freeze_count() > first
    assert len(kept) == 100


def test_a_users_own_process_is_left_alone(unfrozen: None) -> None:
    freeze_imports()
    assert gc.get_freeze_count() == 0


def unacked(sender: socket.socket) -> int:
    found: int = _UNACKED.unpack(sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _UNACKED.size))[0]
    return found


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
        with closing(sender), closing(receiver):
            yield sender, receiver


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="acknowledgements can be hurried on Linux only")
def test_what_arrived_is_acknowledged_at_once(connection: tuple[socket.socket, socket.socket]) -> None:
    sender, receiver = connection

    def is_held_back() -> bool:
        receiver.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        sender.sendall(b"task")
        assert receiver.recv(4) == b"task"
        return unacked(sender) == 1

    eventually(is_held_back)
    with receiver.makefile("rb") as source:
        acknowledge(source)
    assert unacked(sender) == 0


class Sent(SentToWorkers):
    def __init__(self, name: str) -> None:
        self.name = name


def test_unpickling_in_a_worker_acknowledges_the_task(
    connection: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, receiver = connection
    seen: list[object] = []
    monkeypatch.setattr(worker_process, "acknowledge", seen.append)
    pickled = pickle.dumps(Sent("orders"))

    def main(infile: object) -> Sent:
        found = pickle.loads(pickled)
        assert isinstance(found, Sent)
        return found

    with receiver.makefile("rb") as infile:
        assert main(infile).name == "orders"
        assert seen == [infile]
    # And on the driver there is nobody to tell.
    assert pickle.loads(pickled).name == "orders"
    assert len(seen) == 1


def test_files_and_unix_sockets_are_left_alone() -> None:
    here, there = socket.socketpair()
    with here, there, open(__file__, "rb") as file, here.makefile("rwb") as both, here.makefile("rb") as source:
        acknowledge(source)
        acknowledge(file)
        # As PySpark has it in the process that plans a stream: it has no fileno().
        acknowledge(both)
        here.sendall(b"still open")
        assert there.recv(10) == b"still open"
