"""`braidlog.testing.Broker`: a broker for anybody's tests, in a thread and in a process."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.core.protocol_errors import TopicAlreadyExistsError
from braidlog.testing import Broker, BrokerFailed, Kind

KINDS: tuple[Kind, ...] = ("thread", "process")
both_kinds = pytest.mark.parametrize("kind", KINDS)


def topics_of(broker: Broker) -> dict[str | None, int]:
    with ClusterConnection(broker.bootstrap_servers) as cluster:
        return {topic.name: len(topic.partitions) for topic in cluster.metadata(None)}


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline, f"not so after 30 s: {what}"
        time.sleep(0.01)


@both_kinds
def test_topics_are_made_under_the_names_asked_for_or_unique_ones(kind: Kind) -> None:
    with Broker(kind) as broker:
        first, second = broker.create_topic(partitions=3), broker.create_topic(retention_ms=1000)
        named = broker.create_topic("orders", cleanup_policy="compact")
        assert named == "orders"
        assert topics_of(broker) == {first: 3, second: 1, "orders": 1}
        with pytest.raises(TopicAlreadyExistsError, match="orders"):
            broker.create_topic("orders")
        broker.delete_topic("orders")
        assert topics_of(broker) == {first: 3, second: 1}


@both_kinds
def test_a_restart_keeps_port_and_data(kind: Kind) -> None:
    with Broker(kind) as broker:
        topic = broker.create_topic(partitions=2)
        before = broker.bootstrap_servers
        broker.restart()
        assert broker.bootstrap_servers == before
        assert topics_of(broker) == {topic: 2}
        broker.stop()
        assert not broker.is_running
        broker.start()
        assert topics_of(broker) == {topic: 2}


def test_a_killed_process_comes_back_with_what_it_had() -> None:
    with Broker("process") as broker:
        topic = broker.create_topic()
        first = broker.pid
        broker.kill()
        assert not broker.is_running
        broker.start()
        assert broker.pid != first
        assert topics_of(broker) == {topic: 1}


def test_a_thread_cannot_be_killed_and_says_what_can() -> None:
    with Broker() as broker:
        with pytest.raises(BrokerFailed, match='kind="process"'):
            broker.kill()
        assert topics_of(broker) == {}


@both_kinds
def test_settings_are_the_tests_and_not_the_environments(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "9")
    settings = {"num.partitions": 4, "auto_create_topics_enable": True}
    with Broker(kind, settings=settings) as broker, ClusterConnection(broker.bootstrap_servers) as cluster:
        assert len(cluster.topic("made-by-asking", create=True).partitions) == 4


@both_kinds
def test_a_broker_that_cannot_start_says_why_and_leaves_nothing(kind: Kind, tmp_path: Path) -> None:
    handles = len(os.listdir("/proc/self/fd"))
    threads = threading.active_count()
    with Broker(kind, data_dir=tmp_path / "data") as running:
        second = Broker(kind, data_dir=tmp_path / "other", port=running.port)
        with pytest.raises(BrokerFailed, match="is taken by another program"):
            second.start()
        second.close()
        with pytest.raises(BrokerFailed, match=r"--set num\.partitions: .*many"):
            Broker(kind, settings={"num.partitions": "many"}).start()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= handles + 4  # what loops keep for the process
    assert threading.active_count() == threads


@both_kinds
def test_data_is_removed_unless_its_place_was_given(kind: Kind, tmp_path: Path) -> None:
    with Broker(kind) as broker:
        temporary = broker.data_dir
        assert temporary.is_dir()
    assert not temporary.exists()
    with Broker(kind, data_dir=tmp_path / "kept") as broker:
        topic = broker.create_topic()
    assert (tmp_path / "kept" / f"{topic}-0").is_dir()
    with Broker(kind, data_dir=tmp_path / "kept") as broker:
        assert topics_of(broker) == {topic: 1}


def test_several_brokers_share_a_process_and_leave_it_as_it_was() -> None:
    handlers = list(logging.root.handlers)
    level = logging.root.level
    interrupt, terminate = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    threads = set(threading.enumerate())
    with Broker() as one, Broker() as other:
        topic = one.create_topic()
        assert topics_of(one) == {topic: 1}
        assert topics_of(other) == {}
        assert logging.root.handlers == handlers
    assert set(threading.enumerate()) == threads
    assert logging.root.level == level
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == (interrupt, terminate)
    assert (gc.get_threshold(), gc.get_freeze_count()) == (thresholds, frozen)


def test_a_process_that_died_on_its_own_is_told_of() -> None:
    broker = Broker("process").start()
    os.kill(broker.pid, signal.SIGKILL)
    wait_until(lambda: not broker.is_running, "the process has ended")
    with pytest.raises(BrokerFailed, match=r"killed by SIGKILL\) before it was asked to stop"):
        broker.close()


def test_no_broker_outlives_a_test_run_that_was_killed() -> None:
    program = (
        "import sys, braidlog.testing as t\n"
        "broker = t.Broker('process').start()\n"
        "print(broker.pid, broker.data_dir, flush=True)\n"
        "sys.stdin.read()\n"
    )
    run = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.stdin is not None
    assert run.stdout is not None
    with run.stdin, run.stdout:
        pid, _, data = run.stdout.readline().strip().partition(" ")
        run.kill()
        run.wait()
    marker = Path(data) / ".kafka_cleanshutdown"
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or marker.exists(), "the broker has stopped")
    shutil.rmtree(Path(data).parent)


@both_kinds
def test_clients_come_with_it_and_end_with_it(kind: Kind) -> None:
    threads = set(threading.enumerate())
    with Broker(kind) as broker:
        topic = broker.create_topic(partitions=2)
        producer, consumer, admin = broker.producer(), broker.consumer(topic, group_id="g"), broker.admin()
        producer.send(topic, b"value", key=b"key").result(30)
        (record,) = consumer.poll(30)
        assert (record.topic, record.key, record.value) == (topic, b"key", b"value")
        assert topic in [each.name for each in admin.list_topics()]
    assert set(threading.enumerate()) == threads


def test_clients_of_a_broker_that_was_killed_do_not_keep_it_from_closing() -> None:
    with Broker("process") as broker:
        topic = broker.create_topic()
        consumer = broker.consumer(topic, group_id="g")
        broker.producer().send(topic, b"value").result(30)
        assert consumer.poll(30)
        broker.kill()


def test_a_stopped_broker_tells_what_is_missing() -> None:
    broker = Broker()
    with pytest.raises(BrokerFailed, match="start it first"):
        _ = broker.bootstrap_servers
    with pytest.raises(ValueError, match="'thread' and 'process'"):
        Broker("container")  # type: ignore[arg-type]
    broker.close()


@both_kinds
def test_a_setting_that_would_protect_nothing_is_told_and_can_be_allowed(kind: Kind) -> None:
    settings = {"principal.builder.class": "a.B"}
    with pytest.raises(BrokerFailed, match=r"principal\.builder\.class has no effect .*every client can do everything"):
        Broker(kind, settings=settings).start()
    with Broker(kind, settings={**settings, "braidlog.allow.settings.without.effect": "*"}) as broker:
        broker.create_topic("t")


def test_a_consumer_of_the_broker_needs_no_group() -> None:
    """Two tests that read one topic do not take each other's records."""
    with Broker() as broker:
        topic = broker.create_topic(partitions=3)
        producer = broker.producer()
        for partition in range(3):
            producer.send(topic, b"v", partition=partition).result(30)
        for _ in range(2):
            with broker.consumer(topic) as consumer:
                found: set[int] = set()
                deadline = time.monotonic() + 30
                while len(found) < 3:
                    found.update(each.partition for each in consumer.poll(1.0))
                    assert time.monotonic() < deadline, f"only partitions {found} were read"
