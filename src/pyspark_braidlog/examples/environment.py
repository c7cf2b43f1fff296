"""What every example runs in: arguments, a broker and a Spark session of its own, topics, and a clean end.

Ctrl-C and SIGTERM both end an example from wherever it is, and everything that it started is stopped.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.errors import PySparkException

from braidlog import Admin, Producer
from braidlog.client.admin import NewTopic
from braidlog.core.errors import BraidlogError, UserError
from braidlog.core.protocol_errors import ProtocolError, TopicAlreadyExistsError
from pyspark_braidlog.errors import clear_error
from pyspark_braidlog.examples.broker import own_broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# Few rows need few partitions of a shuffle; and in UTC everybody gets the same days and hours.
SESSION_SETTINGS: Final = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}

# A Java that lives for a minute: what its better compiler gains comes too late, and costs half of the time.
_SHORT_LIVED_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class TerminationSignals:
    """The first one raises KeyboardInterrupt; those that follow leave the cleaning up undisturbed.

    Raised in the midst of a call to Java it may come out as another error: `received` tells what it was.
    """

    def __init__(self) -> None:
        # The number of the signal; 0 for none.
        self.received = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        before = [(number, signal.getsignal(number)) for number in _SIGNALS]
        self.install()
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def install(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._end)

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            return
        self.received = number
        # The call to Java that is cut short would be logged with its traceback.
        logging.disable(logging.CRITICAL)
        raise KeyboardInterrupt


class Event(NamedTuple):
    """One record to be sent; no value is a tombstone, no timestamp is now."""

    key: str | None
    value: str | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None


@dataclass
class ExampleEnvironment:
    """The environment of one example. Topics and groups begin with `prefix`, so that they cannot clash with others."""

    bootstrap: str
    spark: SparkSession
    scratch: Path
    prefix: str
    events: int
    _topics: list[str] = field(default_factory=list)
    _groups: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        print(text, flush=True)

    # Topics and groups

    def create_topic(self, name: str, partitions: int = 2, config: Mapping[str, str] | None = None) -> str:
        """Create `<prefix>-<name>`, and return that."""
        topic = f"{self.prefix}-{name}"
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            try:
                admin.create_topics([NewTopic(topic, partitions, config=config or {})]).raise_for_errors()
            except TopicAlreadyExistsError as problem:
                raise UserError(
                    f"topic {topic} is there already: delete it (`braidlog topics delete {topic} --bootstrap "
                    f"{self.bootstrap}`), or have topics named otherwise with --prefix"
                ) from problem
        self._topics.append(topic)
        return topic

    def group(self, name: str) -> str:
        """The name of a consumer group: where a query's progress can be seen."""
        group = f"{self.prefix}-{name}"
        self._groups.append(group)
        return group

    def send(self, topic: str, events: Iterable[Event]) -> int:
        """Write events to a topic; returns how many there were, all of them acknowledged."""
        with Producer(bootstrap_servers=self.bootstrap, linger_ms=5) as producer:
            deliveries = [
                producer.send(topic, event.value, event.key, headers=event.headers, timestamp_ms=event.timestamp_ms)
                for event in events
            ]
            for delivery in deliveries:
                delivery.result(60)
        self.say(f"{len(deliveries):,} records sent to {topic}")
        return len(deliveries)

    def checkpoint(self, name: str) -> str:
        """Where a query remembers how far it came."""
        return str(self.scratch / "checkpoints" / name)

    # Showing

    def written(self, *topics: str) -> DataFrame:
        """What topics hold, as text; of transactions only those that were committed."""
        records = (
            self.spark.read.format("braidlog")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", ",".join(topics))
            .load()
        )
        return records.selectExpr("topic", "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")

    def show(self, title: str, frame: DataFrame, rows: int = 20) -> None:
        self.say(f"\n{title}")
        frame.show(rows, truncate=False)

    def show_lag(self, group: str) -> None:
        """What operators see of a query: its consumer group, and how far it is behind."""
        self.run_command("groups", "describe", group)

    def run_command(self, *words: str) -> None:
        """Run a command of `braidlog`, and show it as one would type it."""
        words = (*words, "--bootstrap", self.bootstrap)
        self.say(f"$ braidlog {shlex.join(words)}")
        done = subprocess.run([sys.executable, "-m", "braidlog", *words], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise UserError(f"`braidlog {shlex.join(words)}` failed: {done.stderr.strip()}")
        self.say(done.stdout.rstrip())

    # Cleaning up

    def clean_up(self) -> None:
        """Delete what the example created on a broker that stays."""
        for query in self.spark.streams.active:
            query.stop()
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            # A group that never came to be is no trouble, and nothing that fails here is worth more than a word.
            problems = [*admin.delete_topics(self._topics).errors.items()] if self._topics else []
            if self._groups:
                admin.delete_groups(self._groups)
        for name, problem in problems:
            self.say(f"{name} was not deleted: {problem}")


def run_example(
    example: Callable[[ExampleEnvironment], None],
    about: str | None,
    *,
    events: int = 1000,
    arguments: Sequence[str] | None = None,
) -> None:
    """The `main` of an example: read its arguments, set up the environment, run it, clean up."""
    name = example.__module__.rpartition(".")[2] if example.__module__ != "__main__" else _running_module()
    options = _parser(name, about or "", events).parse_args(arguments)
    signals = TerminationSignals()
    try:
        with signals.taken(), open_environment(name, options, signals) as env:
            example(env)
    except BaseException as problem:
        if signals.received:
            sys.exit(128 + signals.received)
        if isinstance(problem, (BraidlogError, ProtocolError, PySparkException)):
            sys.exit(f"{name}: {clear_error(problem)}")
        raise


def _running_module() -> str:
    spec = sys.modules["__main__"].__spec__
    return spec.name.rpartition(".")[2] if spec is not None else Path(sys.argv[0]).stem


def _parser(name: str, about: str, events: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m pyspark_braidlog.examples.{name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="a broker to use (default: one is started, and stopped at the end)"
    )
    parser.add_argument("--events", type=_positive, default=events, metavar="N", help=f"how many (default {events})")
    parser.add_argument("--prefix", default=name.replace("_", "-"), help="what names of topics and groups begin with")
    parser.add_argument("--keep", action="store_true", help="leave topics and groups on the broker of --bootstrap")
    parser.add_argument("--master", help="Spark's master (default: two threads of this machine)")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of events: give 1 or more")
    return int(text)


@contextmanager
def open_environment(
    name: str, options: argparse.Namespace, signals: TerminationSignals
) -> Iterator[ExampleEnvironment]:
    from pyspark_braidlog.session import spark_session

    with ExitStack() as stack:
        bootstrap: str = options.bootstrap or stack.enter_context(own_broker())
        print(f"broker at {bootstrap}{'' if options.bootstrap else ', for as long as this runs'}", flush=True)
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"braidlog-{name}-")))
        spark = spark_session(
            f"braidlog example: {name}",
            master=options.master or "local[2]",
            conf={
                **SESSION_SETTINGS,
                "spark.sql.warehouse.dir": str(scratch / "warehouse"),
                "spark.driver.extraJavaOptions": _SHORT_LIVED_JAVA,
            },
        )
        stack.callback(spark.stop)
        # Starting, Spark has put its own handler in place of ours.
        signals.install()
        env = ExampleEnvironment(bootstrap, spark, scratch, options.prefix, options.events)
        if options.bootstrap and not options.keep:
            stack.callback(env.clean_up)
        yield env
