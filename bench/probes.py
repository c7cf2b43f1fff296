"""Whether brokers answer: a process for each asks it a small question every few milliseconds."""

from __future__ import annotations

import multiprocessing
import os
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import NamedTuple

from bench.brokers import Braidlog
from bench.clusters import ClusterBroker
from bench.requests import Requester

PROBE_EVERY_S = 0.005
# Of the process that asks, so that it is not what waits.
PROBE_NICENESS = -5


class Probe(NamedTuple):
    """What one broker answered: when each answer came, after how long, and who the controller is."""

    answers: list[tuple[float, float, int]]

    def longest_wait(self) -> float:
        return max(waited for _, waited, _ in self.answers)

    def first_names_other_than(self, controller: int) -> float:
        return next(at for at, _, named in self.answers if named not in (controller, -1))


@contextmanager
def probing(ports: list[int]) -> Iterator[list[Probe]]:
    """The list is filled when the block ends."""
    context = multiprocessing.get_context("spawn")
    probes: list[Probe] = []
    children = []
    for port in ports:
        here, there = context.Pipe()
        child = context.Process(target=_probe, args=(port, there), daemon=True)
        child.start()
        children.append((child, here))
    try:
        for _, here in children:
            here.recv()  # it has its first answer
        yield probes
        for _, here in children:
            here.send(None)
        probes += [Probe(here.recv()) for _, here in children]
    finally:
        for child, _ in children:
            child.kill()
            child.join()


def _probe(port: int, parent: Connection) -> None:
    with suppress(PermissionError):  # then it waits its turn as others do
        os.nice(PROBE_NICENESS)
    answers: list[tuple[float, float, int]] = []
    with Requester(port) as requester:
        while not parent.poll():
            asked = time.monotonic()
            controller = requester.view(topics=False).controller
            answered = time.monotonic()
            answers.append((answered, answered - asked, controller))
            if len(answers) == 1:
                parent.send(None)
            time.sleep(PROBE_EVERY_S)
    parent.send(answers)


def exported_lag(broker: ClusterBroker) -> float | None:
    if not isinstance(broker, Braidlog):
        return None
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=30) as answer:
        page = answer.read().decode()
    found = re.search(r"^braidlog_event_loop_lag_max_seconds (\S+)", page, re.MULTILINE)
    return float(found[1]) if found is not None else None
