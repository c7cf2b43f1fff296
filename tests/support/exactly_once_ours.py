"""The worker of `support.exactly_once` with our own client."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence

from braidlog import Consumer, ConsumerRecord, Producer
from braidlog.client.consumer.offsets.offset_and_metadata import ConsumerGroupMetadata, OffsetAndMetadata
from braidlog.client.errors import AbortableError, ClientError, NoOffsetError, RequestTimeout
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import TopicPartition
from support.copy_plan import GAVE_UP, TRANSACTION_TIMEOUT_MS, Plan

ONCE_S = 10.0


class OurCopier:
    """One worker: a member of the group, with its own transactional id."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        common = {
            "bootstrap.servers": plan.bootstrap,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
        }
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
                "auto.offset.reset": "none",
                "fetch.max.wait.ms": 50,
            }
        )

    def run(self) -> None:
        _insist(lambda: self._producer.init_transactions(ONCE_S))
        self._consumer.subscribe([self._plan.source])
        while True:
            # Taken before the records: were a rebalance to come between, the coordinator would refuse their offsets.
            membership = self._consumer.group_metadata()
            records = self._consumer.poll(0.05, max_records=50)
            if not records:
                continue
            if membership.generation_id > 0 and self._copy(records, membership):
                print(f"copied {len(records)}", flush=True)
            else:
                self._rewind()

    def _copy(self, records: Sequence[ConsumerRecord], membership: ConsumerGroupMetadata) -> bool:
        """Whether the records are copied; if not, nothing of them is."""
        ends: dict[TopicPartition, OffsetAndMetadata] = {}
        self._producer.begin_transaction()
        try:
            for record in records:
                self._producer.send(self._plan.sink, record.value, record.key, partition=record.partition)
                ends[TopicPartition(self._plan.source, record.partition)] = OffsetAndMetadata(record.offset + 1)
            self._dawdle()
            _insist(lambda: self._producer.send_offsets_to_transaction(ends, membership, ONCE_S))
            self._dawdle()
            _insist(lambda: self._producer.commit_transaction(ONCE_S))
        except AbortableError as failure:
            print(f"aborts: {failure}", flush=True)
            _insist(lambda: self._producer.abort_transaction(ONCE_S))
            return False
        return True

    def _dawdle(self) -> None:
        """With its records sent: so that a death is likely to find a transaction open."""
        try:
            self._producer.flush(ONCE_S)
        except TimeoutError as late:
            print(f"again: {late}", flush=True)
        time.sleep(random.uniform(0, 0.02))

    def _rewind(self) -> None:
        """Back to what the group has committed."""
        for place, committed in self._consumer.committed(list(self._consumer.assignment())).items():
            assert committed is not None, f"the group has committed nothing for {place}"
            self._consumer.seek(place, committed.offset)


def _insist(call: Callable[[], object]) -> None:
    """Repeat a call that did not end in time until it does."""
    while True:
        try:
            call()
            return
        except RequestTimeout as late:
            print(f"again: {late}", flush=True)


def run(plan: Plan) -> None:
    """Until it is killed, or cannot go on."""
    try:
        OurCopier(plan).run()
    except NoOffsetError:
        raise
    except (ClientError, ProtocolError) as failure:
        print(f"gives up: {failure}", flush=True)
        os._exit(GAVE_UP)  # not even a goodbye to the group, as a crash would
