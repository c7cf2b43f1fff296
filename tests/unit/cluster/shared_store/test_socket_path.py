from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from braidlog.cluster.shared_store.socket_path import reachable_path


def test_a_short_path_is_taken_as_it_is() -> None:
    with reachable_path("/a/store.sock") as name:
        assert name == "/a/store.sock"


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors have names on Linux")
def test_a_path_that_is_too_long_for_a_socket_is_reached_all_the_same(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    path = str(deep / "store.sock")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        with reachable_path(path) as name:
            server.bind(name)
        server.listen()
        with reachable_path(path) as name:
            client.connect(name)
        assert (deep / "store.sock").is_socket()
