"""Kafka Streams' word count (`tests/interop/java/WordCount.java`): its topics, its instances, what it should count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.peers.process import LoggedProcess

from support import confluent
from support.confluent import create_topic
from support.eventually import eventually
from support.java_programs import streams_programs
from support.samples import Sample

AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE = "exactly_once_v2"
COUNTS_WITHIN_S = 90.0
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")


class WordCountApp:
    """Topics, the application that counts the words in them, and what it should have counted."""

    def __init__(self, bootstrap: str, name: str, guarantee: str, place: Path, replicas: int = 1) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.input = f"{name}-in"
        self.output = f"{name}-out"
        self.guarantee = guarantee
        self.place = place
        self.expected: Counter[str] = Counter()
        self._instances = 0
        self._replicas = replicas
        create_topic(bootstrap, self.input, 2, replicas)
        create_topic(bootstrap, self.output, 2, replicas)

    def start(self, *settings: str) -> LoggedProcess:
        """A new instance, with a state directory of its own: what it knows it has from the changelog."""
        self._instances += 1
        command = streams_programs().command(
            "WordCount", self.bootstrap, self.name, self.input, self.output, str(self.place / str(self._instances)),
            f"processing.guarantee={self.guarantee}", "commit.interval.ms=100", "repartition.purge.interval.ms=200",
            f"replication.factor={self._replicas}", "session.timeout.ms=3000", "heartbeat.interval.ms=300",
            "num.stream.threads=2", "statestore.cache.max.bytes=0", *settings,
        )  # fmt: skip
        return LoggedProcess("streams", command)

    def write(self, lines: int) -> None:
        """Lines of a few words each, over both partitions."""
        for partition in (0, 1):
            texts = [f"{WORDS[n % 5]} {WORDS[n * 3 % 5]} {WORDS[partition]}" for n in range(lines)]
            samples = [Sample(b"line", text.encode()) for text in texts]
            producer = confluent.producer(self.bootstrap, enable_idempotence=True)
            confluent.send(producer, self.input, samples, partition=partition)
            self.expected.update(word for text in texts for word in text.split(" "))

    def updates(self) -> Iterator[tuple[str, int]]:
        for partition in (0, 1):
            read = confluent.read_all(self.bootstrap, self.output, partition, isolation_level="read_committed")
            for message in read:
                yield message.key().decode(), int(message.value())

    def counts(self) -> dict[str, int]:
        return dict(self.updates())

    def wait_for_first(self, instance: LoggedProcess) -> None:
        """Until anything is counted."""
        self._wait(instance, lambda: bool(self.counts()))

    def wait(self, instance: LoggedProcess) -> None:
        """Until everything is counted."""
        self._wait(instance, lambda: self.counts() == self.expected)

    def _wait(self, instance: LoggedProcess, enough: Callable[[], bool]) -> None:
        def counted() -> bool:
            assert instance.returncode is None, instance.log()
            return enough()

        try:
            eventually(counted, COUNTS_WITHIN_S)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.counts()}\n{self.expected}\n{instance.log()}") from None

    def check_counted_once(self) -> None:
        """A word's counts rise by one, in order: no record was counted twice, none was left out."""
        seen: dict[str, int] = {}
        for word, count in self.updates():
            assert count == seen.get(word, 0) + 1, f"{word}: {count} after {seen.get(word, 0)}"
            seen[word] = count
