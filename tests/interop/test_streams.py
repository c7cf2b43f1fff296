"""Kafka Streams 3.9: a word count with a repartition topic and a changelog, killed and started again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from tools.peers.process import LoggedProcess

from support import confluent
from support.broker import Broker
from support.confluent import create_topic
from support.eventually import eventually
from support.groups import LastingBroker
from support.java_programs import streams_programs
from support.samples import Sample

pytestmark = [pytest.mark.peer]

AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE = "exactly_once_v2"
COUNTS_WITHIN_S = 90.0
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")


class WordCountApp:
    """Topics, the application that counts the words in them, and what it should have counted."""

    def __init__(self, bootstrap: str, name: str, guarantee: str, place: Path) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.input = f"{name}-in"
        self.output = f"{name}-out"
        self.guarantee = guarantee
        self.place = place
        self.expected: Counter[str] = Counter()
        self._instances = 0
        create_topic(bootstrap, self.input, 2)
        create_topic(bootstrap, self.output, 2)

    def start(self, *settings: str) -> LoggedProcess:
        """A new instance, with a state directory of its own: what it knows it has from the changelog."""
        self._instances += 1
        command = streams_programs().command(
            "WordCount", self.bootstrap, self.name, self.input, self.output, str(self.place / str(self._instances)),
            f"processing.guarantee={self.guarantee}", "commit.interval.ms=100", "repartition.purge.interval.ms=200",
            "replication.factor=1", "session.timeout.ms=3000", "heartbeat.interval.ms=300", "num.stream.threads=2",
            "statestore.cache.max.bytes=0", *settings,
        )  # fmt: skip
        return LoggedProcess("streams", command)

    def write(self, lines: int) -> None:
        """Lines of a few words each, over both partitions."""
        for partition in (0, 1):
            texts = [f"{WORDS[n % 5]} {WORDS[n * 3 % 5]} {WORDS[partition]}" for n in range(lines)]
            samples = [Sample(b"line", text.encode()) for text in texts]
            confluent.send(confluent.producer(self.bootstrap), self.input, samples, partition=partition)
            self.expected.update(word for text in texts for word in text.split(" "))

    def updates(self) -> Iterator[tuple[str, int]]:
        for partition in (0, 1):
            read = confluent.read_all(self.bootstrap, self.output, partition, isolation_level="read_committed")
            for message in read:
                yield message.key().decode(), int(message.value())

    def counts(self) -> dict[str, int]:
        return dict(self.updates())

    def wait(self, instance: LoggedProcess) -> None:
        def counted() -> bool:
            assert instance.returncode is None, instance.log()
            return self.counts() == self.expected

        try:
            eventually(counted, COUNTS_WITHIN_S)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.counts()}\n{self.expected}\n{instance.log()}") from None


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE])
def test_word_count(quick_broker: Broker, topic: str, guarantee: str, tmp_path: Path) -> None:
    app = WordCountApp(quick_broker.bootstrap, topic, guarantee, tmp_path)
    app.write(50)
    with app.start() as first:
        app.wait(first)
        app.write(30)
        app.wait(first)
        eventually(lambda: repartition_start(app) > 0)  # what was consumed of it is deleted by the application
        first.terminate()
    app.write(20)
    with app.start() as second:
        app.wait(second)
        assert "state ERROR" not in second.lines
    created = confluent.admin(app.bootstrap).list_topics(timeout=30).topics
    assert {f"{topic}-words-repartition", f"{topic}-counts-changelog"} <= set(created)


def test_killed_while_counting_exactly_once(quick_broker: Broker, topic: str, tmp_path: Path) -> None:
    """Every word is counted once, whichever moment the application was killed at, also with two instances."""
    app = WordCountApp(quick_broker.bootstrap, topic, EXACTLY_ONCE, tmp_path)
    for lines in (200, 300):
        app.write(lines)
        before = sum(app.counts().values())
        with app.start() as killed:
            eventually(lambda: sum(app.counts().values()) > before, COUNTS_WITHIN_S)  # noqa: B023
            app.write(lines)
            killed.kill()
    with app.start() as first, app.start() as second:
        app.write(100)
        app.wait(first)
        second.kill()
        app.write(100)
        app.wait(first)
    assert_counted_once(app)


def test_broker_killed_under_an_exactly_once_count(target_kind: str, topic: str, tmp_path: Path) -> None:
    """The application lives on through the broker's crashes, whatever transaction they cut in two."""
    broker = LastingBroker(target_kind, tmp_path / "data")
    with ExitStack() as apps:
        with broker.life() as running:
            app = WordCountApp(broker.bootstrap, topic, EXACTLY_ONCE, tmp_path)
            app.write(300)
            counting = apps.enter_context(app.start())
            eventually(lambda: bool(app.counts()), COUNTS_WITHIN_S)
            app.write(300)
            running.kill()
        with broker.life() as running:
            before = sum(app.counts().values())
            app.write(300)
            eventually(lambda: sum(app.counts().values()) > before, COUNTS_WITHIN_S)
            running.kill()
        with broker.life():
            app.wait(counting)
            assert_counted_once(app)


def assert_counted_once(app: WordCountApp) -> None:
    """A word's counts rise by one, in order: no record was counted twice, none was left out."""
    seen: dict[str, int] = {}
    for word, count in app.updates():
        assert count == seen.get(word, 0) + 1, f"{word}: {count} after {seen.get(word, 0)}"
        seen[word] = count


def repartition_start(app: WordCountApp) -> int:
    name = f"{app.name}-words-repartition"
    with confluent.assigned(app.bootstrap, name) as consumer:
        offsets = [consumer.get_watermark_offsets(TopicPartition(name, n), timeout=30) for n in (0, 1)]
    return max(low for low, _ in offsets)
