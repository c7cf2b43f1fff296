from __future__ import annotations

from functools import partial

import pytest

from braidlog.broker.coordinators.coordinator_logs import CoordinatorLogs
from braidlog.core.protocol_errors import ProtocolError, UnknownTopicOrPartitionError
from braidlog.wire.records.reading import read_records
from support.asked_broker import AskedBroker, on_broker
from support.log_kit import START_MS, as_slice, batch


def logs_of(broker: AskedBroker) -> CoordinatorLogs:
    parts = broker.parts
    return CoordinatorLogs(
        "t",
        parts.registry,
        parts.committer,
        parts.environment.clock,
        parts.environment.executors,
        lambda partition: "/data",
        lambda: 1 << 20,
    )


@on_broker
async def test_what_is_appended_is_read_back_and_found_in_its_file(broker: AskedBroker) -> None:
    await broker.create("t")
    logs = logs_of(broker)
    assert logs.bounds(0) == (0, 0)
    assert (await logs.read(0, 0)) == (b"", 0)
    done: list[ProtocolError | None] = []
    assert logs.append(0, batch(b"a", b"b"), done.append) == 0
    assert logs.append(0, batch(b"c"), done.append) == 2
    await broker.create("other")  # lets the round write what is staged
    assert done == [None, None]
    assert logs.bounds(0) == (0, 3)
    chunk = await logs.read(0, 0)
    assert chunk.next_offset == 3
    assert [record.value for record in read_records(chunk.data)] == [b"a", b"b", b"c"]
    assert logs.where(0, 2) == "/data/t-0/00000000000000000000.log"


@on_broker
async def test_a_partition_that_is_not_here_is_refused(broker: AskedBroker) -> None:
    logs = logs_of(broker)
    with pytest.raises(UnknownTopicOrPartitionError):
        logs.bounds(0)
    with pytest.raises(UnknownTopicOrPartitionError):
        logs.append(0, batch(b"a"), lambda error: None)


@on_broker
async def test_records_are_read_and_waited_for_before_they_are_committed(broker: AskedBroker) -> None:
    await broker.create("t")
    logs = logs_of(broker)
    log = broker.parts.registry.require("t", 0).require_log()
    log.append_as_leader(as_slice(batch(b"a", b"b")), 0, now_ms=START_MS)
    log.write_staged()
    assert log.high_watermark == 0
    chunk = await logs.read(0, 0)
    assert [record.value for record in read_records(chunk.data)] == [b"a", b"b"]
    reached: list[int] = []
    for offset in (0, 1, 2):
        logs.when_committed(0, offset, partial(reached.append, offset))
    assert reached == [0]
    partition = broker.parts.registry.require("t", 0)
    partition.advance_high_watermark(1, 10)
    assert reached == [0, 1]
    # Something else that readers are woken for.
    partition.wake_readers()
    partition.advance_high_watermark(2, 10)
    assert reached == [0, 1, 2]
    assert partition.readers == []


@on_broker
async def test_who_loses_leadership_waits_no_more(broker: AskedBroker) -> None:
    await broker.create("t")
    partition = broker.parts.registry.require("t", 0)
    reached: list[int] = []
    logs_of(broker).when_committed(0, 5, partial(reached.append, 5))
    assert len(partition.readers) == 1
    epoch = partition.leader_epoch
    partition.update_leader_and_isr(partition.broker_id, epoch + 1, partition.isr, partition.replicas)
    assert partition.readers == [], "the next epoch has waits of its own"
    assert reached == []
