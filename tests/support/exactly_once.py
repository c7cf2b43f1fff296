"""A worker that copies one topic into another in transactions: `python -m support.exactly_once <plan as JSON>`.

It reads committed records, writes each to the same partition of the other topic, and commits its offsets in the same
transaction. Whatever it cannot go on from, it ends with `GAVE_UP`, and is started again, as a supervisor would.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from support.copy_plan import BRAIDLOG, GAVE_UP, TRANSACTION_TIMEOUT_MS, Plan
from support.group_members import generation_of

ONCE_S = 10.0
# librdkafka 2.16 may wait for good for a group's coordinator that has left the cluster's metadata for a while, and does
# not look at the time that it was given (its issues 5511 and 5456); a new producer finds it.
STANDS_STILL_S = 45.0


class Copier:
    """One worker: a member of the group, with its own transactional id."""

    def __init__(self, plan: Plan) -> None:
        common = {
            "bootstrap.servers": plan.bootstrap,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            # librdkafka 2.16 forgets its brokers when the only one is gone, but not that one of them was the group's
            # coordinator: it would wait for a broker that it has put away.
            "metadata.recovery.strategy": "none",
            "log_level": 2,
        }
        self._plan = plan
        self._producer = Producer(
            {
                **common,
                "transactional.id": plan.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 1,
            }
        )
        self._consumer = Consumer(
            {
                **common,
                **plan.member_settings(),
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                # Every partition has a committed offset from the start on: whoever finds none, or one that is not
                # there, has found a loss.
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
            }
        )

    def run(self) -> None:
        _insist(lambda: self._producer.init_transactions(ONCE_S))
        self._consumer.subscribe([self._plan.source])
        while True:
            # Taken before the records: were a rebalance to come between, the coordinator would refuse their offsets.
            membership = self._consumer.consumer_group_metadata()
            messages = self._consumer.consume(50, 0.05)
            records = [message for message in messages if message.error() is None]
            for message in messages:
                error = message.error()
                assert error is None or error.code() != KafkaError._AUTO_OFFSET_RESET, error
                if error is not None and error.fatal():
                    raise KafkaException(error)
            if not records:
                continue
            if generation_of(membership) > 0 and self._copy(records, membership):
                print(f"copied {len(records)}", flush=True)
            else:
                self._rewind()

    def _copy(self, records: Sequence[Message], membership: bytes) -> bool:
        """Whether the records are copied; if not, nothing of them is."""
        ends: dict[tuple[str, int], int] = {}
        self._producer.begin_transaction()
        try:
            for record in records:
                partition = int(record.partition() or 0)
                self._producer.produce(self._plan.sink, value=record.value(), key=record.key(), partition=partition)
                ends[self._plan.source, partition] = int(record.offset() or 0) + 1
            self._dawdle()
            offsets = [TopicPartition(topic, index, end) for (topic, index), end in ends.items()]
            with _giving_up_after(STANDS_STILL_S, "stands still in send_offsets_to_transaction"):
                _insist(lambda: self._producer.send_offsets_to_transaction(offsets, membership, ONCE_S))
            self._dawdle()
            _insist(lambda: self._producer.commit_transaction(ONCE_S))
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            print(f"aborts: {failure}", flush=True)
            _insist(lambda: self._producer.abort_transaction(ONCE_S))
            return False
        return True

    def _dawdle(self) -> None:
        """With its records sent: so that a death is likely to find a transaction open."""
        self._producer.flush(ONCE_S)
        time.sleep(random.uniform(0, 0.02))

    def _rewind(self) -> None:
        """Back to what the group has committed."""
        owned = self._consumer.assignment()
        for place in self._consumer.committed(owned, timeout=ONCE_S):
            assert place.offset >= 0, f"the group has committed nothing for {place}"
            self._consumer.seek(TopicPartition(place.topic, place.partition, place.offset))


@contextmanager
def _giving_up_after(seconds: float, why: str) -> Iterator[None]:
    def give_up() -> None:
        print(f"gives up: {why}", flush=True)
        os._exit(GAVE_UP)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _insist(call: Callable[[], object]) -> None:
    """Repeat a call that may be repeated until it succeeds."""
    while True:
        try:
            call()
            return
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise
            print(f"again: {failure}", flush=True)


def main(arguments: Sequence[str]) -> None:
    faulthandler.register(signal.SIGUSR1)  # says where it stands, when it does not get on
    plan = Plan.from_json(arguments[0])
    if plan.client == BRAIDLOG:
        from support.exactly_once_ours import run

        run(plan)
        return
    try:
        Copier(plan).run()
    except KafkaException as failure:
        print(f"gives up: {failure}", flush=True)
        os._exit(GAVE_UP)  # not even a goodbye to the group, as a crash would


if __name__ == "__main__":
    main(sys.argv[1:])
