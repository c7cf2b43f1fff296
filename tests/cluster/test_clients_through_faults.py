"""Clients of every kind write and read on three brokers, while these are stopped, killed and paused past their session.

A partition has one replica: what a broker leads waits until it is back. Nothing that was acknowledged is lost, nothing
is given up, and all brokers agree on what happened within `KNOWN_WITHIN_S` (and a session, where a death has to be
noticed).
"""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from braidlog.testing import Cluster
from support import confluent
from support.cluster_faults import live_through_faults, whole
from support.cluster_traffic import PARTITIONS, PYTHON_CLIENTS, Traffic
from support.java_programs import OLDER, client_programs

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    # kafka-python leaves sockets that could not connect to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CONTROLLERS = 10


def create(cluster: Cluster, topic: str) -> None:
    confluent.create_topic(cluster.bootstrap_servers, topic, PARTITIONS)
    whole(cluster, topic, PARTITIONS)


@pytest.fixture(scope="module")
def survivors(cluster: Cluster) -> Iterator[dict[str, Traffic]]:
    """All Python clients at once, each with its own topic, after the controller was killed ten times and more."""
    with ExitStack() as running:
        clients: dict[str, Traffic] = {}
        for name, kind in PYTHON_CLIENTS.items():
            create(cluster, f"through-faults-{name}")
            clients[name] = running.enter_context(kind(cluster.bootstrap_servers, f"through-faults-{name}"))
        live_through_faults(cluster, f"through-faults-{name}", PARTITIONS, CONTROLLERS)
        for client in clients.values():
            client.settle()
        yield clients
    # Now, while nobody minds: in a later test their sockets would be warnings, and fail it.
    clients.clear()
    del client
    gc.collect()


@pytest.mark.parametrize("name", PYTHON_CLIENTS)
def test_a_python_client(survivors: dict[str, Traffic], name: str) -> None:
    survivors[name].check()


@pytest.mark.peer
def test_the_java_client(cluster: Cluster) -> None:
    create(cluster, "through-faults-java")
    command = client_programs(OLDER).command(
        "ClusterTraffic", cluster.bootstrap_servers, "through-faults-java", str(PARTITIONS)
    )
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ) as java:
        assert java.stdout is not None
        assert java.stdout.readline() == "under way\n"
        live_through_faults(cluster, "through-faults-java", PARTITIONS)
        said, _ = java.communicate(timeout=300)
    found = [int(word) for word in said.splitlines()[-1].split() if word.isdecimal()]
    acknowledged, failed, missing = found
    assert (failed, missing) == (0, 0), said
    assert acknowledged > 0
