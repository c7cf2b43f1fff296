"""Programs that forget to flush, to close or to keep their producer: each a process of its own, as users run them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import braidlog
from support import confluent
from support.broker import Broker, start_braidlog

SOURCE = Path(braidlog.__file__).parents[1]
# Far more than any of these programs takes, and far less than delivery.timeout.ms.
PATIENCE_S = 60.0


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=environment, check=False)


def values(broker: Broker, topic: str) -> list[bytes]:
    return [message.value() or b"" for message in confluent.read_all(broker.bootstrap, topic)]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


PLAIN = """
    import sys
    from braidlog import Producer
    producer = Producer(bootstrap_servers=sys.argv[1])
    for number in range(5000):
        producer.send(sys.argv[2], b"%d" % number)
"""
LINGERING = PLAIN.replace("sys.argv[1])", "sys.argv[1], linger_ms=60_000, compression_type='lz4')")
IN_A_FUNCTION = """
    import sys
    from braidlog import Producer
    def work():
        producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
        for number in range(5000):
            producer.send(sys.argv[2], b"%d" % number)
    work()
"""
SYSTEM_EXIT = PLAIN + "    sys.exit(0)\n"
THREAD_GOES_ON = """
    import sys, threading
    from braidlog import Producer
    producer = Producer(bootstrap_servers=sys.argv[1])
    ended = threading.Event()
    def work():
        threading.main_thread().join()
        for number in range(5000):
            producer.send(sys.argv[2], b"%d" % number)
    threading.Thread(target=work).start()
"""
OWN_EXIT_HANDLER = """
    import atexit, sys
    from braidlog import Producer
    @atexit.register
    def last():
        for number in range(5000):
            producer.send(sys.argv[2], b"%d" % number)
    producer = Producer(bootstrap_servers=sys.argv[1])
"""
ASYNC = """
    import asyncio, sys
    from braidlog import Producer
    async def main():
        producer = Producer(bootstrap_servers=sys.argv[1])
        for number in range(5000):
            producer.send(sys.argv[2], b"%d" % number)
    asyncio.run(main())
"""
BY_NAME = PLAIN.replace("sys.argv[1])", "sys.argv[1].replace('127.0.0.1', 'localhost'))")
HANDLER_BY_NAME = OWN_EXIT_HANDLER.replace("sys.argv[1])", "sys.argv[1].replace('127.0.0.1', 'localhost'))")
MULTIPROCESSING = """
    import multiprocessing, sys
    from braidlog import Producer
    def work(bootstrap, topic):
        producer = Producer(bootstrap_servers=bootstrap, linger_ms=60_000)
        for number in range(5000):
            producer.send(topic, b"%d" % number)
    if __name__ == "__main__":
        child = multiprocessing.get_context("fork").Process(target=work, args=tuple(sys.argv[1:]))
        child.start()
        child.join()
        sys.exit(child.exitcode)
"""
THREAD_OF_MULTIPROCESSING = MULTIPROCESSING.replace("import multi", "import threading, multi").replace(
    """
        for number in range(5000):
            producer.send(topic, b"%d" % number)
""",
    """
        def go_on():
            threading.main_thread().join()
            for number in range(5000):
                producer.send(topic, b"%d" % number)
        threading.Thread(target=go_on).start()
""",
)


@pytest.mark.parametrize(
    "program",
    [
        PLAIN,
        LINGERING,
        IN_A_FUNCTION,
        SYSTEM_EXIT,
        THREAD_GOES_ON,
        OWN_EXIT_HANDLER,
        ASYNC,
        BY_NAME,
        HANDLER_BY_NAME,
        MULTIPROCESSING,
        THREAD_OF_MULTIPROCESSING,
    ],
    ids=[
        "plain",
        "lingering",
        "producer of a function",
        "sys.exit",
        "a thread that goes on",
        "an exit handler",
        "asyncio",
        "broker by name",
        "an exit handler, broker by name",
        "multiprocessing",
        "a thread of multiprocessing that goes on",
    ],
)
def test_what_was_never_flushed_arrives(broker: Broker, topic: str, program: str) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    done = run(program, broker.bootstrap, topic)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert values(broker, topic) == numbers(5000)


def test_an_exception_that_ends_the_program_does_not_cost_its_records(broker: Broker, topic: str) -> None:
    done = run(PLAIN + "    raise ValueError('of the program')\n", broker.bootstrap, topic)
    assert done.returncode == 1
    assert "ValueError: of the program" in done.stderr
    assert "not delivered" not in done.stderr
    assert len(values(broker, topic)) == 5000


def test_callbacks_are_called_before_the_program_ends(broker: Broker, topic: str) -> None:
    program = PLAIN.replace(
        'b"%d" % number)', 'b"%d" % number, on_delivery=lambda place, error: print(place.offset if place else error))'
    )
    done = run(program, broker.bootstrap, topic)
    assert done.stdout.split() == [str(number) for number in range(5000)]
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def stoppable(tmp_path: Path) -> Iterator[Broker]:
    with start_braidlog(tmp_path / "data") as running:
        yield running


STOPPED = """
    import atexit, os, signal, sys, time
    # What is registered first is called last.
    atexit.register(lambda: print(f"took: {time.monotonic() - ended:.3f}", file=sys.stderr))
    from braidlog import Producer
    producer = Producer(bootstrap_servers=sys.argv[1], **eval(sys.argv[3]))
    producer.send("first", b"v").result()
    producer.send("second", b"v").result()
    os.kill(int(sys.argv[2]), signal.SIGKILL)
    for number in range(3):
        producer.send("first", b"%d" % number, on_delivery=lambda place, error: print(type(error).__name__))
    producer.send("second", b"v")
    ended = time.monotonic()
"""


def end_took_s(done: subprocess.CompletedProcess[str]) -> float:
    """From the program's last line to its very end, without its start."""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("took: ")]
    return float(line.removeprefix("took: "))


def test_a_broker_that_is_gone_is_waited_for_ten_seconds_and_told_of(stoppable: Broker) -> None:
    done = run(STOPPED, stoppable.bootstrap, str(stoppable.process.pid), "{}")
    # A record has 120 s.
    assert 9.9 <= end_took_s(done) < 50.0
    assert done.returncode == 0
    assert done.stdout.split() == ["ClosedError"] * 3
    (reported,) = [line for line in done.stderr.splitlines() if "not delivered" in line]
    assert "4 records were not delivered (3 to first, 1 to second)" in reported
    assert f"no broker answers at {stoppable.bootstrap}" in reported


def test_the_end_waits_no_longer_than_a_record_may_take(stoppable: Broker) -> None:
    settings = "dict(delivery_timeout_ms=3000, request_timeout_ms=2000)"
    done = run(STOPPED, stoppable.bootstrap, str(stoppable.process.pid), settings)
    assert end_took_s(done) < 9.0
    assert done.returncode == 0
    assert set(done.stdout.split()) <= {"ClosedError", "DeliveryTimeoutError"}
    assert len(done.stdout.split()) == 3
    assert "first" in done.stderr
    assert "second" in done.stderr


def test_an_interrupt_at_the_end_is_obeyed_and_told_of(stoppable: Broker) -> None:
    """Ctrl-C while the end waits for a broker that is gone."""
    interrupted = (
        STOPPED
        + """
    import threading
    atexit.register(lambda: threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start())
"""
    )
    done = run(interrupted, stoppable.bootstrap, str(stoppable.process.pid), "{}")
    assert end_took_s(done) < 9.0
    assert "4 records were not delivered" in done.stderr
    assert "Traceback" not in done.stderr


FORKED = """
    import os, sys
    from braidlog import Producer
    producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
    deliveries = [producer.send(sys.argv[2], b"%d" % number) for number in range(100)]
    child = os.fork()
    if child == 0:
        for ask in (deliveries[0].result, producer.flush, lambda: producer.send(sys.argv[2], b"child")):
            try:
                ask()
            except Exception as problem:
                print(type(problem).__name__, "fork" in str(problem), flush=True)
        own = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
        own.send(sys.argv[2], b"of the child")
        sys.exit(0)
    os.waitpid(child, 0)
"""


def test_a_forked_child_sends_its_own_records_and_none_of_its_parents(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    done = run(FORKED, broker.bootstrap, topic)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["ClosedError True"] * 3
    assert values(broker, topic) == [b"of the child", *numbers(100)]


NO_REFERENCE = """
    import asyncio, sys
    from braidlog import Producer
    settings = {"bootstrap.servers": sys.argv[1]}
    print(Producer(settings).send(sys.argv[2], b"0").result().offset)
    async def main():
        print((await Producer(settings).send(sys.argv[2], b"1")).offset)
    asyncio.run(main())
    Producer(settings).send(sys.argv[2], b"2", on_delivery=lambda place, error: print(place.offset))
"""


def test_a_producer_that_nobody_keeps_delivers(broker: Broker, topic: str) -> None:
    done = run(NO_REFERENCE, broker.bootstrap, topic)
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", ["0", "1", "2"])


TRANSACTION = """
    import sys
    from braidlog import Producer
    producer = Producer(bootstrap_servers=sys.argv[1], transactional_id=sys.argv[2])
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(sys.argv[2], b"in the transaction").result()
"""


@pytest.mark.parametrize("forget", ["", "    del producer\n"], ids=["program ends", "producer forgotten"])
def test_an_open_transaction_is_aborted_and_told_of(broker: Broker, topic: str, forget: str) -> None:
    done = run(TRANSACTION + forget, broker.bootstrap, topic)
    assert done.returncode == 0
    assert f"transactional id {topic}" in done.stderr
    assert "commit_transaction()" in done.stderr
    assert values(broker, topic) == []


KEPT_BY_A_CALLBACK = """
    import sys, threading
    from braidlog import Producer
    from braidlog.client.network import engine
    from braidlog.client.producer import lifetime
    engine._JOIN_S = lifetime.EXIT_FLUSH_S = 1.0
    producer = Producer(bootstrap_servers=sys.argv[1], transactional_id=sys.argv[2])
    producer.init_transactions()
    producer.begin_transaction()
    called = threading.Event()
    def keep(place, error):
        called.set()
        threading.Event().wait()
    producer.send(sys.argv[2], b"v", on_delivery=keep)
    called.wait()
"""


@pytest.mark.parametrize("then", ["", "    producer.close(1.0)\n"], ids=["at exit", "close"])
def test_a_callback_that_never_returns_does_not_keep_the_program(broker: Broker, topic: str, then: str) -> None:
    done = run(KEPT_BY_A_CALLBACK + then, broker.bootstrap, topic)
    assert done.returncode == 0
    assert "did not end within 1 s; left behind" in done.stderr
