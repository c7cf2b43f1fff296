"""All attacks for twenty minutes, one after another and several at once, beside clients that must not notice.

`BRAIDLOG_SOAK_MINUTES` says for how long, `BRAIDLOG_SOAK_PICTURE` where the picture goes (an SVG; its numbers go beside
it as JSON), `BRAIDLOG_SOAK_SEED` draws the same order again, `BRAIDLOG_SOAK_ATTACKS` names the attacks (default: all).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException

from support.attacks.catalog import ATTACKS
from support.attacks.processes import ClientFailed, RunningAttack, Victim, memory_of
from support.attacks.target import Target
from support.attacks.timeline import Recorder, Timeline
from support.attacks.victim import TOPIC as VICTIM_TOPIC
from support.broker import Broker, start_braidlog
from support.confluent import create_topic
from support.eventually import eventually
from support.numbered import NumberedWriter

MINUTES = float(os.environ.get("BRAIDLOG_SOAK_MINUTES", "20"))
RESULTS = Path(__file__).parents[1] / "results"
PICTURE = Path(os.environ.get("BRAIDLOG_SOAK_PICTURE", RESULTS / "client-isolation.svg"))
NAMES = [name for name in os.environ.get("BRAIDLOG_SOAK_ATTACKS", "").split(",") if name] or list(ATTACKS)
SEED = int(os.environ.get("BRAIDLOG_SOAK_SEED", random.randrange(2**32)))

MIB = 1 << 20
BUDGET = 256 * MIB
# The rest is for what the broker needs when nobody attacks it, and for what its allocator keeps.
MOST_MEMORY = BUDGET + 128 * MIB
TOPIC, PARTITIONS = "honest", 4
ATTACK_S = 6.0
PAUSE_S = 1.0
AT_ONCE = 4
SINGLE_BEFORE_TOGETHER = 5
# A hang and not a delay, on a machine where several attackers want two cores.
LONGEST_WAIT_MS = 5_000
# Thousands of partitions take longer to make than to attack.
SCALES = dict.fromkeys(("alter-configs", "create-partitions", "create-topics", "delete-topics"), 0.3)


class NumberedReader:
    """A member of a group that reads all numbers of every partition, each once and in order."""

    def __init__(self, bootstrap: str) -> None:
        self.next: Counter[int] = Counter()
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "honest",
                "auto.offset.reset": "earliest",
                "check.crcs": True,
                "log_level": 2,
            }
        )

    @property
    def read(self) -> int:
        return self.next.total()

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._read, name="numbered reader", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(60)
            self._consumer.close()

    def _read(self) -> None:
        self._consumer.subscribe([TOPIC])
        while not self._stop.is_set():
            try:
                for message in self._consumer.consume(500, 0.2):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    partition, number = int(message.partition() or 0), int((message.value() or b"").split()[0])
                    if number != self.next[partition]:
                        self.failures.append(f"{TOPIC}-{partition}: {number} came after {self.next[partition] - 1}")
                    self.next[partition] = number + 1
            except KafkaException as problem:
                self.failures.append(str(problem))


def _attack_together(names: list[str], broker: Broker, recorder: Recorder) -> Counter[str]:
    """These attacks at once for a while; what they counted. What they have made is deleted afterwards."""
    counted: Counter[str] = Counter()
    with ExitStack() as running:
        attacks = [running.enter_context(RunningAttack(name, broker.port, SCALES.get(name, 1.0))) for name in names]
        with recorder.band(names):
            end = time.monotonic() + ATTACK_S
            for attack in attacks:
                attack.begin()
            for attack in attacks:
                attack.has_landed_within(max(0.0, end - time.monotonic()))
            time.sleep(max(0.0, end - time.monotonic()))
            for attack in attacks:
                counted.update(attack.finish())
    target = Target(broker.port)
    target.delete_topics_but({TOPIC, VICTIM_TOPIC})
    target.close()
    return counted


def _plan(order: random.Random) -> Iterator[list[str]]:
    """Every attack alone before any comes again; after every few of them, several at once."""
    while True:
        names = order.sample(NAMES, len(NAMES))
        for number, name in enumerate(names, 1):
            yield [name]
            if number % SINGLE_BEFORE_TOGETHER == 0:
                yield order.sample(names, min(AT_ONCE, len(names)))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_twenty_minutes_of_attacks(tmp_path: Path) -> None:
    print(f"\nseed {SEED}, {MINUTES:g} minutes, picture in {PICTURE}")
    with start_braidlog(tmp_path / "data", {"braidlog.memory.max": str(BUDGET)}) as broker, ExitStack() as running:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        writer, reader = NumberedWriter(broker.bootstrap, {TOPIC: PARTITIONS}), NumberedReader(broker.bootstrap)
        victim = running.enter_context(Victim(broker.port))
        timeline = Timeline(
            f"Attacks beside honest clients for {MINUTES:g} minutes: one record every 5 ms, and the broker's memory",
            memory_bound=MOST_MEMORY,
        )
        recorder = Recorder(timeline, broker.process.pid, victim)
        failures: list[str] = []
        with reader.running():
            try:
                with writer.running(at_once=1), recorder.recording():
                    _besiege(broker, recorder, failures)
                    victim.await_report_after(time.monotonic())
            finally:
                timeline.write(PICTURE)
            assert broker.process.returncode is None, f"the broker ended:\n{broker.log()}"
            assert not failures, failures
            writer.flush()
            sent = sum(books.sent for books in writer.books)
            assert writer.acknowledged == sent
            eventually(lambda: reader.read >= sent or bool(reader.failures))
            assert not reader.failures, reader.failures[:5]
        print(f"{sent} records written, {writer.check(broker.bootstrap)} found, {reader.read} read meanwhile")
        _check(timeline, victim)
        victim.stop()
        assert broker.stop() == 0, broker.log()


def _besiege(broker: Broker, recorder: Recorder, failures: list[str]) -> None:
    for names in _plan(random.Random(SEED)):
        time.sleep(PAUSE_S)
        try:
            counted = _attack_together(names, broker, recorder)
        except (ClientFailed, AssertionError, OSError) as problem:
            failures.append(f"{', '.join(names)} at {recorder.seconds:.0f} s: {type(problem).__name__}: {problem}")
            counted = Counter()
        now = memory_of(broker.process.pid) / 1e6 if broker.process.returncode is None else 0
        print(f"{recorder.seconds:6.0f} s  {now:5.0f} MB  {', '.join(names)}: {dict(counted)}", flush=True)
        if broker.process.returncode is not None or recorder.seconds > MINUTES * 60:
            return


def _check(timeline: Timeline, victim: Victim) -> None:
    late = [
        f"{window.max:.0f} ms at {window.begin:.0f} s ({', '.join(timeline.attacks_at(window.begin)) or 'no attack'})"
        for window in timeline.windows
        if window.max > LONGEST_WAIT_MS
    ]
    assert not late, f"the victim was not served: {late}"
    broken = victim.between(0, time.monotonic()).broken
    assert not broken, f"the victim lost its connection: {broken}"
    peak_at, peak = max(timeline.memory, key=lambda sample: sample[1])
    assert peak < MOST_MEMORY, f"{peak / 1e6:.0f} MB at {peak_at:.0f} s: {timeline.attacks_at(peak_at)}"
