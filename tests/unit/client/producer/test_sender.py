"""The sender against brokers that refuse, move, forget and find things too large."""

from __future__ import annotations

import pytest

from braidlog.client.errors import (
    AuthenticationFailed,
    BufferFullError,
    ClosedError,
    RecordTooLargeError,
)
from support.producer_simulation import TOPIC, ProducerSimulation


@pytest.fixture
def world() -> ProducerSimulation:
    made = ProducerSimulation()
    made.learn()
    return made


def values(world: ProducerSimulation, partition: int = 0) -> list[bytes | None]:
    return world.logs[(TOPIC, partition)].values


def test_records_linger_until_time_or_size() -> None:
    world = ProducerSimulation(linger_s=0.5, batch_size=200)
    world.learn()
    world.run(1.0)
    world.send(b"a")
    world.run(0.4)
    assert not world.requests
    world.run(0.2)
    assert len(world.requests) == 1
    # Full ones do not wait.
    for _ in range(3):
        world.send(bytes(100))
    world.run(0.2)
    assert len(world.requests) == 3


def test_a_flush_ends_lingering() -> None:
    world = ProducerSimulation(linger_s=100.0)
    world.learn()
    delivery = world.send(b"a")
    world.loop.run_until_complete(world.incomplete_batches.drained())
    assert delivery.done()
    assert world.loop.time() < 1.0


def test_without_a_leader_batches_wait_for_one(world: ProducerSimulation) -> None:
    world.leaders[0] = -1
    world.learn()
    delivery = world.send(b"a")
    world.run(3.0)
    assert not delivery.done()
    assert 10 < world.metadata.refreshes < 40
    world.leaders[0] = 2
    world.run(1.0)
    assert delivery.result(0).offset == 0


def test_a_record_that_no_request_can_carry_is_refused_at_once(world: ProducerSimulation) -> None:
    with pytest.raises(RecordTooLargeError, match=r"max.request.size \(1048576\)"):
        world.send(bytes(2_000_000))
    assert not world.accumulator.has_incomplete


def test_sends_that_wait_for_memory_in_a_loop_are_admitted_in_order() -> None:
    world = ProducerSimulation(memory=400, batch_size=100)
    world.learn()
    deliveries = [world.send(b"%03d" % number) for number in range(100)]
    assert world.accumulator.pending_sends.count > 0
    world.run(30.0)
    assert values(world) == [b"%03d" % number for number in range(100)]
    assert [delivery.result(0).offset for delivery in deliveries] == list(range(100))
    assert world.accumulator.pool.available == 400


def test_memory_that_never_gets_free_fails_the_send_after_max_block() -> None:
    world = ProducerSimulation(memory=100, batch_size=100, max_block_s=2.0)
    world.learn()
    world.unreachable.add(1)
    world.send(bytes(50))
    late = world.send(bytes(50))
    world.run(3.0)
    with pytest.raises(BufferFullError, match=r"buffer\.memory"):
        late.result(0)


def test_a_topic_that_appears_late_takes_what_waited_for_it() -> None:
    world = ProducerSimulation()
    world.known = False
    deliveries = [world.send(b"%d" % number) for number in range(3)]
    world.run(5.0)
    assert not deliveries[0].done()
    world.known = True
    world.run(2.0)
    assert [delivery.result(0).offset for delivery in deliveries] == [0, 1, 2]


def test_everything_left_is_failed_when_asked(world: ProducerSimulation) -> None:
    world.unreachable.add(1)
    deliveries = [world.send(b"a"), world.send(b"b", 1)]
    world.run(1.0)
    world.incomplete_batches.end(ClosedError("closed"))
    assert [type(delivery.exception(0)) for delivery in deliveries] == [ClosedError, ClosedError]
    with pytest.raises(ClosedError):
        world.send(b"c")
    world.run(5.0)
    assert world.accumulator.pool.available == world.limits.memory


def test_refused_credentials_fail_records_at_once() -> None:
    world = ProducerSimulation(leaders=(2, 2))
    world.learn()
    world.run(0.5)
    world.unwelcome.add(2)
    delivery = world.send(b"a")
    world.run(1.0)
    with pytest.raises(AuthenticationFailed):
        delivery.result(0)
    world.unwelcome.clear()
    after = world.send(b"b")
    world.run(1.0)
    assert after.result(0).offset == 0


def test_a_batch_handed_over_whole_keeps_its_place(world: ProducerSimulation) -> None:
    from librt.strings import BytesWriter

    from braidlog.wire.records.encoding import write_record

    out = BytesWriter()
    for index in range(3):
        write_record(out, 0, index, index, None, b"whole %d" % index, ())
    world.run(1.0)
    world.send(b"before")
    whole = world.send_path._append_batch(TOPIC, 0, out.getvalue(), 3, 1_000, 1_002)
    world.send(b"after")
    world.run(1.0)
    assert values(world) == [b"before", b"whole 0", b"whole 1", b"whole 2", b"after"]
    assert whole.result(0).offset == 1
    assert [record.timestamp for record in world.logs[(TOPIC, 0)].records[1:4]] == [1_000, 1_001, 1_002]
