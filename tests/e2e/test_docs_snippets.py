"""Every Python snippet of README.md and docs/client/ is run against a real broker, as a reader would run it.

What a snippet takes for granted (a topic with records in it, a function of the reader's program) is declared here, and
so is how one that goes on for ever is ended. One that cannot be run is named with the reason, and type-checked like
all the others.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import braidlog
from braidlog import Producer
from braidlog.testing import Broker

ROOT = Path(__file__).parent.parent.parent
SOURCE = Path(braidlog.__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "client").glob("*.md"))]
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Where the pages say a broker is.
ADDRESSES: Final = ("localhost:9092", "127.0.0.1:9092")
TIMEOUT_S: Final = 120


class Snippet(NamedTuple):
    page: str
    number: int
    text: str

    @property
    def key(self) -> str:
        return f"{self.page}:{self.number}"


class Surroundings(NamedTuple):
    """What a snippet takes for granted."""

    # Code before it, such as the reader's own functions; and after it.
    before: str = ""
    after: str = ""
    # Topics that have a few records.
    topics: tuple[str, ...] = ()
    # What it prints, at least.
    prints: tuple[str, ...] = ()
    # It is a file of tests, for pytest.
    is_test: bool = False


ENDS_AFTER_TWO = """
from typing import Any
_seen: list[Any] = []
def {name}(*arguments):
    import builtins
    builtins.print("handled", *arguments)
    _seen.append(arguments)
    if len(_seen) == 2:
        {end}
"""
EXIT = "import sys; sys.exit()"

SURROUNDINGS: Final = {
    "README.md:1": Surroundings(prints=("RecordMetadata(topic='greetings'", "b'en' b'hello'")),
    "README.md:2": Surroundings(is_test=True),
    "admin.md:1": Surroundings(prints=("0",)),
    "arrow.md:1": Surroundings(prints=("3 ", "offset")),
    "arrow.md:2": Surroundings(topics=("clicks",), before=(
        "import braidlog\n"
        "from braidlog import Producer\n"
        "with Producer(bootstrap_servers='localhost:9092', buffer_memory=1 << 28) as _producer:\n"
        "    for _ in range(250_000):\n"
        "        _producer.send('clicks', b'v')\n"
    )),
    "consumer.md:1": Surroundings(
        topics=("orders",), before=ENDS_AFTER_TWO.format(name="print", end=EXIT), prints=("handled orders 0 1",)
    ),
    "consumer.md:2": Surroundings(topics=("orders",)),
    "groups.md:1": Surroundings(
        topics=("orders",), before=ENDS_AFTER_TWO.format(name="handle", end=EXIT),
        prints=("mine now", "handled ConsumerRecord(orders-0 at 0"),
    ),
    "parallel.md:1": Surroundings(
        topics=("orders",),
        before=(
            "from braidlog import Consumer, ParallelConsumer, TopicPartition\n"
            # The group begins at the start, and work ends with the records that there are.
            "with Consumer(bootstrap_servers='localhost:9092', group_id='billing') as _first:\n"
            "    _first.commit({TopicPartition('orders', 0): 0})\n"
            "_work = ParallelConsumer.run\n"
            "ParallelConsumer.run = lambda self: _work(self, idle_timeout=5)  # type: ignore\n"
            "def charge(key: object, value: object) -> None:\n"
            "    print('charged', value)\n"
        ),
        prints=("charged b'0'", "charged b'4'"),
    ),
    "producer.md:1": Surroundings(prints=("orders 0 0",)),
    "producer.md:2": Surroundings(
        topics=("orders", "out"),
        before=(
            "from braidlog import Consumer, Producer\n"
            "consumer = Consumer(bootstrap_servers='localhost:9092', group_id='shop', auto_offset_reset='earliest')\n"
            "consumer.subscribe(['orders'])\n"
            "offsets = {record.topic_partition: record.offset + 1 for record in consumer.poll(30)}\n"
        ),
        after=(
            "\nproducer.close()\n"
            "(committed,) = consumer.committed(list(offsets)).values()\n"
            "assert committed is not None and committed.offset == 5, committed\n"
            "consumer.close()\n"
        ),
    ),
    "testing.md:1": Surroundings(is_test=True),
    "testing.md:2": Surroundings(is_test=True),
    "testing.md:3": Surroundings(is_test=True),
    "testing.md:4": Surroundings(is_test=True),
    "testing.md:5": Surroundings(prints=("127.0.0.1:",)),
    "transactions.md:1": Surroundings(topics=("orders", "invoices"), after=(
        "\nwith Consumer(bootstrap_servers='localhost:9092', isolation_level='read_committed') as reader:\n"
        "    reader.assign([('invoices', 0)])\n"
        "    reader.seek_to_beginning()\n"
        "    values = [record.value for record in reader.poll(30)]\n"
        "    assert values[5:] == [b'%d' % number for number in range(5)], values\n"
    )),
}  # fmt: skip
for _number in (2, 4, 6):
    SURROUNDINGS[f"migrating.md:{_number}"] = Surroundings(prints=("0 0 b'ann'",))
    SURROUNDINGS[f"migrating.md:{_number - 1}"] = Surroundings(prints=("0 0 b'ann'",))

# What cannot be run here, and why; it is compiled and type-checked all the same.
NOT_RUN: Final = {
    "README.md:3": "a stream of Spark's; tests/spark runs what it is made of",
    "security.md:1": "needs TLS and SASL, which our broker has not yet; test_client_security_kafka.py has its settings",
    "security.md:2": "needs an identity provider; test_client_security_kafka.py has its settings",
}
# What those take for granted, for the type checker.
NOT_RUN_BEFORE: Final = {
    "security.md:2": "from typing import Any\nidentity_provider: Any = None\n",
}


def snippets() -> list[Snippet]:
    return [
        Snippet(page.name, number, text)
        for page in PAGES
        for number, text in enumerate(SNIPPET.findall(page.read_text()), 1)
    ]


ALL: Final = snippets()
RUN: Final = [snippet for snippet in ALL if snippet.key not in NOT_RUN]


def program_of(snippet: Snippet, bootstrap: str) -> str:
    around = SURROUNDINGS.get(snippet.key, Surroundings())
    text = NOT_RUN_BEFORE.get(snippet.key, "") + around.before + "\n" + snippet.text + around.after
    for address in ADDRESSES:
        text = text.replace(address, bootstrap)
    return text


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.mark.parametrize("snippet", RUN, ids=lambda snippet: snippet.key)
def test_a_snippet_does_what_the_page_says(snippet: Snippet, broker: Broker, tmp_path: Path) -> None:
    around = SURROUNDINGS.get(snippet.key, Surroundings())
    for topic in around.topics:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(5):
                producer.send(topic, b"%d" % number, key=b"k")
    program = tmp_path / "test_snippet.py"
    program.write_text(program_of(snippet, broker.bootstrap_servers))
    command = [sys.executable, str(program)]
    if around.is_test:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(program)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for text in around.prints:
        assert text in done.stdout, done.stdout + done.stderr
    if around.is_test:
        assert " passed" in done.stdout


def test_all_snippets_pass_a_type_checker(tmp_path: Path) -> None:
    for snippet in ALL:
        name = re.sub(r"\W", "_", snippet.key)
        (tmp_path / f"{name}.py").write_text(program_of(snippet, "localhost:9092"))
    command = [sys.executable, "-m", "mypy", "--config-file=", "--check-untyped-defs", "--no-error-summary"]
    # Libraries without types: other people's clients, Spark, Arrow.
    command += ["--ignore-missing-imports", "--follow-imports=silent", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_snippets_and_nothing_is_declared_in_vain() -> None:
    keys = {snippet.key for snippet in ALL}
    assert {snippet.page for snippet in ALL} == {page.name for page in PAGES}
    assert set(SURROUNDINGS) <= keys
    assert set(NOT_RUN) <= keys
    assert not set(SURROUNDINGS) & set(NOT_RUN)
    for snippet in ALL:
        compile(snippet.text, snippet.key, "exec")
