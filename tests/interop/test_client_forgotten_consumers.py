"""Consumers that a program forgets, rebinds or forks: each as a program of its own against a real broker.

Sessions are left at 45 s, so that a member which only times out comes far too late for any of these.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from braidlog.client.admin.admin import Admin
from support import confluent
from support.broker import Broker, StartBroker, start_target
from support.samples import Sample

BOTH_PROTOCOLS = ("classic", "consumer")
# Far below a session, far above what a loaded machine takes to join.
PROMPTLY_S = 25.0
NEVER_CLOSED = "a consumer was never closed: it leaves the group now"

COMMON = """
import gc, os, sys, time
from braidlog import Admin, AsyncConsumer, Consumer, ParallelConsumer, TopicPartition
from braidlog.client.errors import ClosedError

# What has to wait for the collector would wait for it for ever.
gc.disable()
bootstrap, topic, protocol = sys.argv[1:]
settings = dict(
    bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", group_protocol=protocol,
    enable_auto_commit=False,
)

def first(consumer):
    deadline = time.monotonic() + 25.0
    while time.monotonic() < deadline:
        records = consumer.poll(1.0)
        if records:
            return records
    sys.exit("nothing came")
"""


@pytest.fixture(scope="module")
def waiting_broker(target_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    if target_kind == "kafka":
        settings["group.coordinator.rebalance.protocols"] = "classic,consumer"
    with start_target(target_kind, tmp_path_factory.mktemp("forgotten") / "data", settings) as running:
        yield running


@pytest.fixture
def filled(waiting_broker: Broker, topic: str) -> str:
    confluent.send(confluent.producer(waiting_broker.bootstrap), topic, [Sample(None, b"%d" % at) for at in range(200)])
    return topic


def run(broker: Broker, topic: str, program: str, protocol: str = "classic") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", COMMON + textwrap.dedent(program), broker.bootstrap, topic, protocol],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def members(broker: Broker, group: str) -> int:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        return len(admin.describe_groups([group])[group].members)


# Forgotten


@pytest.mark.parametrize("protocol", BOTH_PROTOCOLS)
def test_a_cell_that_is_run_again_reads_again_at_once(waiting_broker: Broker, filled: str, protocol: str) -> None:
    done = run(
        waiting_broker,
        filled,
        """
        for _ in range(3):
            consumer = Consumer(**settings)
            consumer.subscribe([topic])
            print(first(consumer)[0].offset)
        """,
        protocol,
    )
    # It commits nothing that may not be handled: each begins where the first did.
    assert done.stdout.split() == ["0", "0", "0"]
    # Two were rebound, one was left at the end; without any set-up of logging that is seen.
    assert done.stderr.count(NEVER_CLOSED) == 3, done.stderr
    assert "with Consumer(...) as consumer" in done.stderr
    assert members(waiting_broker, filled) == 0


def test_a_consumer_that_its_own_listener_holds_is_collected(waiting_broker: Broker, filled: str) -> None:
    run(
        waiting_broker,
        filled,
        """
        class Told:
            def __init__(self, consumer):
                self.consumer = consumer
                self.assigned = []
            def on_partitions_assigned(self, partitions):
                self.assigned += partitions

        consumer = Consumer(**settings)
        told = Told(consumer)
        consumer.subscribe([topic], listener=told)
        first(consumer)
        assert told.assigned == [TopicPartition(topic, 0)], told.assigned
        del consumer, told
        gc.collect()
        with Admin(bootstrap_servers=bootstrap) as admin:
            deadline = time.monotonic() + 25.0
            while admin.describe_groups([topic])[topic].members:
                assert time.monotonic() < deadline, "it is still in its group"
                time.sleep(0.05)
        """,
    )


def test_an_error_that_was_handled_does_not_keep_its_consumer(waiting_broker: Broker, topic: str) -> None:
    """A job that fails on a record and is tried again: the first try must not sit on the partitions."""
    confluent.send(confluent.producer(waiting_broker.bootstrap), topic, [Sample(None, b"not json")])
    done = run(
        waiting_broker,
        topic,
        """
        from braidlog.client.errors import PoisonRecordError

        def job(**more):
            consumer = Consumer(topic, **settings, **more)
            return first(consumer)[0].value

        for _ in range(2):
            try:
                job(value_deserializer="json")
            except PoisonRecordError as problem:
                print(problem.offset)
            # An error and its traceback refer to each other.
            gc.collect()
        print(job().decode())
        """,
    )
    assert done.stdout.splitlines() == ["0", "0", "not json"]
    assert members(waiting_broker, topic) == 0


def test_the_async_consumer_leaves_as_well(waiting_broker: Broker, filled: str) -> None:
    done = run(
        waiting_broker,
        filled,
        """
        import asyncio

        async def cell():
            consumer = AsyncConsumer(**settings)
            await consumer.subscribe([topic])
            async with asyncio.timeout(25):
                print((await anext(consumer)).offset)

        asyncio.run(cell())
        asyncio.run(cell())
        """,
    )
    assert done.stdout.split() == ["0", "0"]
    assert done.stderr.count(NEVER_CLOSED) == 2, done.stderr
    assert members(waiting_broker, filled) == 0


def test_a_parallel_consumers_consumer_leaves_as_well(waiting_broker: Broker, filled: str) -> None:
    done = run(
        waiting_broker,
        filled,
        """
        def handle(record):
            offsets.append(record.offset)
            if len(offsets) >= 200:
                parallel.stop()

        # All are handled, however long that takes; then it is seen that none is left.
        for idle_timeout in (None, 1.0):
            consumer = Consumer(**settings)
            offsets = []
            parallel = ParallelConsumer(consumer, handle, commit_interval=3600).subscribe([topic])
            parallel.run(idle_timeout=idle_timeout)
            print(min(offsets, default="committed"), len(offsets))
        """,
    )
    assert done.stdout.split("\n")[:2] == ["0 200", "committed 0"]
    assert done.stderr.count(NEVER_CLOSED) == 2, done.stderr
    assert members(waiting_broker, filled) == 0


def test_a_static_member_keeps_its_place(waiting_broker: Broker, filled: str) -> None:
    done = run(
        waiting_broker,
        filled,
        """
        consumer = Consumer(**settings, group_instance_id="one")
        consumer.subscribe([topic])
        first(consumer)
        """,
    )
    assert "keeps its partitions until its session is over" in done.stderr
    assert members(waiting_broker, filled) == 1


def test_what_was_closed_or_never_joined_says_nothing(waiting_broker: Broker, filled: str) -> None:
    done = run(
        waiting_broker,
        filled,
        """
        with Consumer(**settings) as closed:
            closed.subscribe([topic])
            first(closed)
        never_polled = Consumer(**settings)
        never_polled.subscribe([topic])
        alone = Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        alone.assign([TopicPartition(topic, 0)])
        first(alone)
        """,
    )
    assert done.stderr == ""


def test_a_program_ends_though_its_broker_says_nothing(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker({"group.initial.rebalance.delay.ms": "0"})
    confluent.send(confluent.producer(broker.bootstrap), topic, [Sample(None, b"v")])
    try:
        done = run(
            broker,
            topic,
            f"""
            import atexit, signal
            # What is registered first is called last.
            atexit.register(lambda: print(time.monotonic() - ended))
            consumer = Consumer(**settings)
            consumer.subscribe([topic])
            first(consumer)
            os.kill({broker.process.pid}, signal.SIGSTOP)
            ended = time.monotonic()
            """,
        )
    finally:
        broker.process.signal(signal.SIGCONT)
    assert NEVER_CLOSED in done.stderr
    assert float(done.stdout) < PROMPTLY_S


# Forked

IN_A_CHILD = """
def in_a_child(calls, end=sys.exit):
    \"\"\"What each call says, in a child that ends as a program does: through its exit handlers.\"\"\"
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        for name, call in calls.items():
            try:
                print(name, "returned", call())
            except ClosedError as problem:
                print(name, "refused" if "before a fork" in str(problem) else problem)
        sys.stdout.flush()
        end(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize("protocol", BOTH_PROTOCOLS)
def test_a_child_cannot_use_its_parents_consumer(waiting_broker: Broker, filled: str, protocol: str) -> None:
    done = run(
        waiting_broker,
        filled,
        IN_A_CHILD
        + """
consumer = Consumer(**settings, max_poll_records=10)
consumer.subscribe([topic])
records = iter(consumer)
read = [next(records).offset for _ in range(5)]
before = consumer.group_metadata()
in_a_child({
    "next": lambda: next(records),
    "poll": lambda: consumer.poll(0.1),
    "poll_one": lambda: consumer.poll_one(0.1),
    "poll_arrow": lambda: consumer.poll_arrow(0.1),
    "subscribe": lambda: consumer.subscribe(["other"]),
    "commit": lambda: consumer.commit(),
    "position": lambda: consumer.position((topic, 0)),
    "assignment": lambda: consumer.assignment(),
    "list_topics": lambda: consumer.list_topics(),
    "parallel": lambda: ParallelConsumer(consumer, print).subscribe([topic]).run(),
    "close": lambda: consumer.close(),
})
# The parent reads on where it was, as the member that it was.
while len(read) < 200:
    read += [record.offset for record in consumer.poll(1.0)]
assert read == list(range(200)), read
time.sleep(0.5)
assert consumer.poll(0.5) == []
assert consumer.group_metadata() == before
consumer.close()
print("the end")
""",
        protocol,
    )
    *said, end = done.stdout.splitlines()
    assert end == "the end"
    refused = ("next", "poll", "poll_one", "poll_arrow", "subscribe", "commit", "position", "assignment")
    assert said == [f"{each} refused" for each in (*refused, "list_topics", "parallel")] + ["close returned None"]
    assert done.stderr == ""


def test_a_process_of_multiprocessing_cannot_either(waiting_broker: Broker, filled: str) -> None:
    done = run(
        waiting_broker,
        filled,
        """
        import multiprocessing

        def work(_):
            try:
                return [record.offset for record in consumer.poll(0.1)]
            except ClosedError as problem:
                return str(problem)

        with Consumer(**settings, max_poll_records=10) as consumer:
            consumer.subscribe([topic])
            read = [record.offset for record in first(consumer)]
            with multiprocessing.get_context("fork").Pool(2) as pool:
                for answer in pool.map(work, range(2)):
                    print(answer)
            while len(read) < 200:
                read += [record.offset for record in consumer.poll(1.0)]
        assert read == list(range(200)), read
        """,
    )
    said = "this consumer was made before a fork and belongs to the parent process; make a new one here"
    assert done.stdout.splitlines() == [said, said]


def test_a_process_of_multiprocessing_leaves_with_its_own(waiting_broker: Broker, filled: str) -> None:
    """One that is collected as its function returns, and one that is still referred to when the process ends."""
    done = run(
        waiting_broker,
        filled,
        """
        import multiprocessing

        kept = []

        def work(keep):
            consumer = Consumer(topic, **settings)
            first(consumer)
            if keep:
                kept.append(consumer)

        for keep in (False, True):
            child = multiprocessing.get_context("fork").Process(target=work, args=(keep,))
            child.start()
            child.join()
            assert child.exitcode == 0
        """,
    )
    assert done.stderr.count(NEVER_CLOSED) == 2, done.stderr
    assert members(waiting_broker, filled) == 0


def test_a_child_cannot_use_its_parents_async_consumer_or_admin(waiting_broker: Broker, filled: str) -> None:
    done = run(
        waiting_broker,
        filled,
        IN_A_CHILD
        + """
import asyncio
# An interpreter that ends closes this loop, and with it the parent's wake-ups: the child must not end in order.
loop = asyncio.new_event_loop()
run = loop.run_until_complete

async def made():
    consumer = AsyncConsumer(**settings)
    await consumer.subscribe([topic])
    assert (await anext(consumer)).offset == 0
    return consumer

consumer = run(made())
admin = Admin(bootstrap_servers=bootstrap)
unused = Admin(bootstrap_servers=bootstrap)
assert bool(admin.list_topics())
in_a_child({
    "anext": lambda: asyncio.run(asyncio.wait_for(anext(consumer), 20)),
    "poll": lambda: asyncio.run(consumer.poll(0.1)),
    "commit": lambda: asyncio.run(consumer.commit()),
    "close": lambda: asyncio.run(consumer.close()),
    "admin": lambda: bool(admin.list_topics()),
    "admin within": lambda: bool(admin.within(5).list_topics()),
    "admin close": lambda: admin.close(),
    # One that was never used has nothing that is the parent's.
    "unused": lambda: bool(unused.list_topics()),
}, os._exit)
assert run(anext(consumer)).offset == 1
run(consumer.close())
assert bool(admin.list_topics())
print("the end")
""",
    )
    assert done.stdout.splitlines() == [
        "anext refused",
        "poll refused",
        "commit refused",
        "close returned None",
        "admin refused",
        "admin within refused",
        "admin close returned None",
        "unused returned True",
        "the end",
    ]
