"""Our client's transactions under faults: exactly-once copying through kills, connections cut at every request.

The seed is printed and decides everything that is killed and when; `BRAIDLOG_SEED=7` runs that one again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from braidlog import Producer
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.errors import AbortableError, DeliveryTimeoutError
from braidlog.core.types import TopicPartition
from support import confluent
from support.broker import Broker
from support.copy_scenario import CopyScenario
from support.cutting_proxy import CuttingProxy
from support.group_scenarios import committed
from support.groups import LastingBroker
from support.request_cutting import ANSWER, REQUEST, RequestCutter
from support.soak import scaled

TOPIC, GROUP = "ledger", "readers"
PARTITIONS = 2
QUICK = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 50}
APIS = {
    "Produce": 0,
    "FindCoordinator": 10,
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
}
# With transaction.version 2 nobody sends these.
EXPLICIT = ("AddPartitionsToTxn", "AddOffsetsToTxn")


def copy_through(kind: str, place: Path, kills: int, seed: int, *, static: bool) -> None:
    seed = int(os.environ.get("BRAIDLOG_SEED", seed))
    copying = CopyScenario(kind, place, seed, static=static, client="braidlog")
    print(f"seed {seed}, {kills} kills")
    copying.run(kills)
    print(f"{copying.aborted} records of aborted transactions; deaths: {copying.deaths}")
    assert copying.aborted > 0, "no transaction was cut short, so nothing was shown"
    assert len(copying.deaths) >= kills
    assert {"broker", *copying.names} <= set(copying.deaths), "everybody died at least once"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("static", [pytest.param(True, marks=pytest.mark.long), False], ids=["static", "dynamic"])
def test_our_client_copies_everything_once_through_a_dozen_kills(
    target_kind: str, tmp_path: Path, static: bool
) -> None:
    copy_through(target_kind, tmp_path / "data", 12, seed=4 if static else 5, static=static)


@pytest.mark.soak
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("seed", range(200, 200 + scaled(1)))
def test_our_client_copies_everything_once_through_hundreds_of_kills(
    target_kind: str, tmp_path: Path, seed: int, static: bool
) -> None:
    copy_through(target_kind, tmp_path / "data", scaled(60), seed, static=static)


# Connections that are cut


@pytest.fixture(scope="module")
def cut_broker(target_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RequestCutter, Broker]]:
    """A broker behind a proxy that cuts at requests, for all the tests of them."""
    with proxied(RequestCutter(), target_kind, tmp_path_factory.mktemp("cut")) as (proxy, broker):
        assert isinstance(proxy, RequestCutter)
        yield proxy, broker


@contextmanager
def proxied(proxy: CuttingProxy, kind: str, place: Path) -> Iterator[tuple[CuttingProxy, Broker]]:
    lasting = LastingBroker(kind, place / "data", proxy.settings())
    # Not the port that it says it is ready on: that is the proxy's.
    proxy.broker_port = lasting.port
    with proxy, lasting.life() as broker:
        yield proxy, broker


def values(bootstrap: str, topic: str, level: str = "read_committed") -> list[list[str]]:
    """By partition."""
    return [
        [
            (message.value() or b"").decode()
            for message in confluent.read_all(bootstrap, topic, partition, isolation_level=level, fetch_wait_max_ms=10)
        ]
        for partition in range(PARTITIONS)
    ]


@pytest.mark.parametrize("what", [REQUEST, ANSWER])
@pytest.mark.parametrize("api", APIS)
def test_each_request_may_be_lost(cut_broker: tuple[RequestCutter, Broker], topic: str, api: str, what: str) -> None:
    """Whether the broker has acted on it or not: what is committed shows once, what is aborted never."""
    proxy, broker = cut_broker
    if api in EXPLICIT and not broker.is_kafka:
        pytest.skip("transaction.version 2 has no such request")
    group = f"{topic}-{GROUP}"
    confluent.create_topic(proxy.bootstrap, topic, PARTITIONS)
    kept: list[str] = []
    lost_before = proxy.lost
    with Producer(bootstrap_servers=proxy.bootstrap, transactional_id=topic, **QUICK) as producer:
        if api in ("InitProducerId", "FindCoordinator"):
            proxy.lose(APIS[api], what)
        producer.init_transactions()
        for number, commits in enumerate([True, False, True, True, False, False, True]):
            if api not in ("InitProducerId", "FindCoordinator"):
                proxy.lose(APIS[api], what)
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.send(topic, str(number), partition=partition)
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(number)}, group)
            producer.flush(30)
            if commits:
                producer.commit_transaction()
                kept.append(str(number))
            else:
                producer.abort_transaction()
    assert proxy.lost - lost_before == (1 if api in ("InitProducerId", "FindCoordinator") else 7)
    assert values(proxy.bootstrap, topic) == [kept] * PARTITIONS
    assert committed(proxy.bootstrap, group, {(topic, 0): 0}) == {(topic, 0): (6, "")}


PATIENT = {"linger_ms": 2}
# Records are given up while a broker may have them: only a new epoch tells these from what follows.
HASTY = {"linger_ms": 2, "request_timeout_ms": 300, "delivery_timeout_ms": 320}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("settings", [PATIENT, HASTY], ids=["patient", "hasty"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_connections_cut_at_random(target_kind: str, tmp_path: Path, seed: int, settings: Mapping[str, int]) -> None:
    """Every transaction that was reported committed shows whole, in order, once; no other shows at all."""
    seed = int(os.environ.get("BRAIDLOG_SEED", seed))
    with proxied(CuttingProxy(), target_kind, tmp_path) as (proxy, _):
        confluent.create_topic(proxy.bootstrap, TOPIC, PARTITIONS)
        with Producer(bootstrap_servers=proxy.bootstrap, transactional_id="ledger", **QUICK) as producer:
            # A broker that has just started may be too slow for who is hasty.
            producer.init_transactions()
            kept = Writer(producer, random.Random(seed)).one_transaction(0)
        with Producer(bootstrap_servers=proxy.bootstrap, transactional_id="ledger", **QUICK, **settings) as producer:
            writer = Writer(producer, random.Random(seed))
            producer.init_transactions()
            if settings is HASTY:
                lose_in_doubt(producer, proxy)
            proxy.delay_answers(0.01 if settings is HASTY else 0.0)
            end = proxy.misbehave(seed, pause_s=0.2 if settings is HASTY else 0.05)
            try:
                for number in range(1, 60 if settings is HASTY else 120):
                    for partition, some in enumerate(writer.one_transaction(number)):
                        kept[partition] += some
            finally:
                end()
                proxy.delay_answers(0.0)
        assert values(proxy.bootstrap, TOPIC) == kept
        everything = values(proxy.bootstrap, TOPIC, "read_uncommitted")
    print(f"seed {seed}: {proxy.cuts} cuts, {writer.spoilt} spoilt, {sum(map(len, kept))} records kept")
    assert proxy.cuts > 5
    assert sum(map(len, everything)) > sum(map(len, kept)), "something was aborted"


def lose_in_doubt(producer: Producer, proxy: CuttingProxy) -> None:
    """A record that the broker has and the producer gives up: it spoils its transaction, and shows nowhere."""
    producer.begin_transaction()
    while producer.send(TOPIC, "first", partition=0).exception(30) is not None:
        # A busy machine was too slow for who is hasty.
        producer.abort_transaction()
        producer.begin_transaction()
    proxy.lose_answers(True)
    given_up = producer.send(TOPIC, "in doubt", partition=0)
    assert isinstance(given_up.exception(30), DeliveryTimeoutError)
    proxy.lose_answers(False)
    with pytest.raises(AbortableError, match="were not acknowledged within"):
        producer.commit_transaction()
    producer.abort_transaction()


class Writer:
    """Transactions of chance."""

    def __init__(self, producer: Producer, chance: random.Random) -> None:
        self._producer = producer
        self._chance = chance
        self.spoilt = 0

    def one_transaction(self, number: int) -> list[list[str]]:
        """What is to be seen of it, by partition."""
        producer, chance = self._producer, self._chance
        written: list[list[str]] = [[] for _ in range(PARTITIONS)]
        producer.begin_transaction()
        try:
            for record in range(chance.randrange(1, 60)):
                partition = chance.randrange(PARTITIONS)
                value = f"{number}:{record}:" + "x" * chance.randrange(400)
                producer.send(TOPIC, value, partition=partition)
                written[partition].append(value)
                if chance.random() < 0.1:
                    producer.flush(60)
            if chance.random() < 0.5:
                producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): OffsetAndMetadata(number)}, GROUP)
            if chance.random() < 0.6:
                producer.commit_transaction()
                return written
            producer.abort_transaction()
        except AbortableError:
            self.spoilt += 1
            producer.abort_transaction()
        return [[] for _ in range(PARTITIONS)]
