"""The sender against brokers that refuse, move, forget and find things too large."""

from __future__ import annotations

import logging
import re
import threading
from collections import deque

import pytest

from braidlog.client.errors import (
    AuthenticationFailed,
    BufferFullError,
    ClosedError,
    ConcurrentUseError,
    DeliveryTimeoutError,
    RecordTooLargeError,
)
from braidlog.core.protocol_errors import (
    InvalidRecordError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    TopicAuthorizationFailedError,
)
from braidlog.wire.records.reading import read_records
from support.producer_simulation import LOST_AFTER, TOPIC, ProducerSimulation


@pytest.fixture
def world() -> ProducerSimulation:
    made = ProducerSimulation()
    made.learn()
    return made


def values(world: ProducerSimulation, partition: int = 0) -> list[bytes | None]:
    return world.logs[(TOPIC, partition)].values


def test_all_ready_partitions_of_a_broker_share_a_request(world: ProducerSimulation) -> None:
    world.run(1.0)
    world.send(b"a", 0)
    world.send(b"b", 1)
    world.run(1.0)
    assert world.requests == [[(0, 0, 1), (1, 0, 1)]]


def test_a_partition_has_one_batch_in_a_request() -> None:
    world = ProducerSimulation(batch_size=0)
    world.learn()
    for number in range(4):
        world.send(b"%d" % number)
    world.run(1.0)
    assert [len(request) for request in world.requests] == [1, 1, 1, 1]


def test_a_request_has_at_most_the_bytes_allowed() -> None:
    world = ProducerSimulation(max_request=400)
    world.learn()
    world.send(bytes(250), 0)
    world.send(bytes(250), 1)
    world.run(1.0)
    assert [len(request) for request in world.requests] == [1, 1]


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


def test_a_leader_that_moved_is_followed_at_once(world: ProducerSimulation) -> None:
    world.send(b"a")
    world.run(1.0)
    world.leaders[0] = 2
    moved_at = world.loop.time()
    done: list[float] = []
    world.send(b"b", on_delivery=lambda metadata, error: done.append(world.loop.time()))
    world.run(1.0)
    assert values(world) == [b"a", b"b"]
    assert done[0] - moved_at < 0.1


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


def test_a_batch_too_large_for_the_broker_is_split(world: ProducerSimulation) -> None:
    world.logs[(TOPIC, 0)].largest = 250
    world.run(1.0)
    reported: list[int] = []
    deliveries = [
        world.send(b"%02d" % number + bytes(18), on_delivery=lambda metadata, error: reported.append(metadata.offset))
        for number in range(40)
    ]
    world.run(10.0)
    assert [delivery.result(0).offset for delivery in deliveries] == list(range(40))
    assert reported == list(range(40))
    assert [value[:2] for value in values(world) if value] == [b"%02d" % number for number in range(40)]
    assert world.accumulator.pool.available == world.limits.memory
    assert world.response_handler.batches_split > 1
    assert world.producer_id_state.epoch == 0


def test_one_record_too_large_for_the_broker_fails_and_the_next_goes_on(world: ProducerSimulation) -> None:
    world.logs[(TOPIC, 0)].largest = 250
    large = world.send(bytes(400))
    world.run(1.0)
    small = world.send(b"a")
    world.run(5.0)
    with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes"):
        large.result(0)
    assert small.result(0).offset == 0
    # The sequence has no gap: what came after starts anew.
    assert world.producer_id_state.epoch == 1


def test_errors_of_records_reach_their_own_deliveries(world: ProducerSimulation) -> None:
    world.refusals[0] = deque([87])
    world.record_errors[0] = [(1, "no key, but the topic is compacted")]
    deliveries = [world.send(b"%d" % number) for number in range(3)]
    world.run(1.0)
    with pytest.raises(InvalidRecordError, match="no key"):
        deliveries[1].result(0)
    with pytest.raises(InvalidRecordError, match="other records of the same batch"):
        deliveries[0].result(0)


def test_an_error_that_lasts_fails_at_once(world: ProducerSimulation) -> None:
    world.refusals[0] = deque([29])
    delivery = world.send(b"a")
    world.run(1.0)
    assert isinstance(delivery.exception(0), TopicAuthorizationFailedError)
    assert len(world.requests) == 1


def test_retries_pause_longer_each_time(world: ProducerSimulation) -> None:
    world.refusals[0] = deque([19] * 6)
    world.send(b"a")
    world.run(20.0)
    assert len(world.requests) == 7
    assert values(world) == [b"a"]


def test_a_disk_that_refuses_is_logged_once_and_when_it_is_over(
    world: ProducerSimulation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "braidlog.client")
    # KAFKA_STORAGE_ERROR, for some six seconds.
    world.refusals[0] = deque([56] * 9)
    world.send(b"a")
    world.run(20.0)
    assert values(world) == [b"a"]
    warning, information = [each for each in caplog.records if "failing" in each.message or "again" in each.message]
    assert warning.levelname == "WARNING"
    assert "producer: failing for" in warning.message
    assert f"partition 0 of topic {TOPIC}: the disk under it failed" in warning.message
    assert information.levelname == "INFO"
    assert re.search(f"works again after [5-9] s: partition 0 of topic {TOPIC}", information.message)


def test_a_leader_that_moves_is_not_logged(world: ProducerSimulation, caplog: pytest.LogCaptureFixture) -> None:
    # NOT_LEADER_OR_FOLLOWER twice, then a lost connection.
    world.refusals[0] = deque([6, 6])
    world.faults.append(LOST_AFTER)
    world.send(b"a")
    world.run(20.0)
    assert caplog.text == ""


def test_so_many_retries_and_no_more() -> None:
    world = ProducerSimulation(idempotent=False, acks=1, retries=2)
    world.learn()
    world.refusals[0] = deque([19] * 6)
    delivery = world.send(b"a")
    world.run(20.0)
    assert len(world.requests) == 3
    assert isinstance(delivery.exception(0), NotEnoughReplicasError)


def test_a_broker_that_forgot_the_producer_gets_a_new_epoch(world: ProducerSimulation) -> None:
    world.send(b"a")
    world.run(1.0)
    # UNKNOWN_PRODUCER_ID, and the log start offset is known.
    world.refusals[0] = deque([59])
    world.logs[(TOPIC, 0)].producers.clear()
    delivery = world.send(b"b")
    world.run(2.0)
    assert delivery.result(0).offset == 1


def test_a_sequence_that_the_broker_misses_bumps_the_epoch(world: ProducerSimulation) -> None:
    world.send(b"a")
    world.run(1.0)
    producer = next(iter(world.logs[(TOPIC, 0)].producers))
    world.logs[(TOPIC, 0)].producers[producer] = (0, 40, {})
    world.logs[(TOPIC, 0)].producers[producer] = (0, -1, {})
    delivery = world.send(b"b")
    world.run(2.0)
    assert delivery.result(0).offset == 1
    assert world.producer_id_state.epoch == 1


def test_epochs_that_are_used_up_need_a_new_id(world: ProducerSimulation) -> None:
    world.first_epoch = 0x7FFF
    world.logs[(TOPIC, 0)].largest = 250
    world.send(bytes(400))
    world.run(1.0)
    world.first_epoch = 0
    delivery = world.send(b"a")
    world.run(2.0)
    assert delivery.result(0).offset == 0
    assert world.ids_given == 2
    assert world.producer_id_state.epoch == 0


def test_acks_0_asks_for_no_answer() -> None:
    world = ProducerSimulation(acks=0, idempotent=False)
    world.learn()
    delivery = world.send(b"a")
    world.run(1.0)
    assert delivery.result(0).offset == -1
    assert values(world) == [b"a"]
    assert not world.nodes.open[1]._waiting


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_batches_are_compressed_and_can_be_split_again(codec: int) -> None:
    world = ProducerSimulation(codec=codec)
    world.learn()
    world.logs[(TOPIC, 0)].largest = 200
    world.run(1.0)
    sent = [world.random.randbytes(30) for _ in range(30)]
    deliveries = [world.send(value) for value in sent]
    world.run(20.0)
    assert values(world) == sent
    assert [delivery.result(0).offset for delivery in deliveries] == list(range(30))


def test_metadata_has_timestamps_and_sizes() -> None:
    world = ProducerSimulation()
    world.learn()
    delivery = world.send(b"four", timestamp_ms=1_000, key=b"k")
    world.run(1.0)
    metadata = delivery.result(0)
    assert (metadata.timestamp_ms, metadata.serialized_key_size, metadata.serialized_value_size) == (1_000, 1, 4)
    assert world.logs[(TOPIC, 0)].records[0].timestamp == 1_000


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


def test_an_answer_after_the_end_is_ignored() -> None:
    world = ProducerSimulation(delivery_timeout_s=1.0)
    world.learn()
    world.run(0.5)
    world.send(b"a")
    world.run(1.0)
    world.nodes.open[1]._free_at = world.loop.time() + 5.0
    delivery = world.send(b"b")
    world.run(3.0)
    assert isinstance(delivery.exception(0), DeliveryTimeoutError)
    world.run(10.0)
    assert isinstance(delivery.exception(0), DeliveryTimeoutError)
    assert values(world) == [b"a", b"b"]


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


def test_a_duplicate_is_a_success(world: ProducerSimulation) -> None:
    world.send(b"a")
    world.run(1.0)
    world.faults.append(LOST_AFTER)
    deliveries = [world.send(b"%d" % number) for number in range(3)]
    world.run(5.0)
    assert values(world) == [b"a", b"0", b"1", b"2"]
    assert [delivery.result(0).offset for delivery in deliveries] == [1, 2, 3]


def test_encoded_bytes_are_what_brokers_read(world: ProducerSimulation) -> None:
    world.send(b"v", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp_ms=5)
    world.run(1.0)
    (record,) = world.logs[(TOPIC, 0)].records
    assert (record.key, record.value, record.headers, record.timestamp) == (b"k", b"v", (("h", b"1"), ("n", None)), 5)
    assert read_records(b"") == []


def test_a_callback_that_flushes_is_refused_instead_of_waiting_for_itself(world: ProducerSimulation) -> None:
    world.accumulator.guard.engine_thread = threading.get_ident()
    world.send(b"a")
    with pytest.raises(ConcurrentUseError, match="a delivery callback cannot flush"):
        world.incomplete_batches.wait(0.01)
