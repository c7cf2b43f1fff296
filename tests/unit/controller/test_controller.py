from __future__ import annotations

import asyncio
import errno
import logging
import random
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.cluster import paths
from braidlog.cluster.control_requests import ControlRequest, LeaderAndIsr, StopReplica, UpdateMetadata
from braidlog.cluster.loading import load
from braidlog.cluster.store import SetData
from braidlog.controller import active_controller
from braidlog.controller.requests import (
    ConfigChange,
    ConfigChanges,
    ConfigResource,
    FullConfig,
    NewPartitions,
    NewTopic,
    Reassignment,
    TopicRef,
)
from braidlog.core import protocol_errors as errors
from braidlog.core.clock import ManualClock
from braidlog.core.types import BrokerId, TopicPartition
from support.controller_harness import OneBroker, one_broker
from support.memory_journal import MemoryJournalFiles


def with_broker(body: Callable[[OneBroker], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            async with one_broker() as broker:
                await asyncio.wait_for(body(broker), 20)

        asyncio.run(run())

    return test


@with_broker
async def test_start_makes_this_broker_the_controller(broker: OneBroker) -> None:
    image = broker.controller.image
    assert image.controller_id == BrokerId(1)
    assert len(image.cluster_id) == 22
    assert list(image.brokers) == [1]
    (first,) = broker.channel.requests
    assert isinstance(first, UpdateMetadata)
    assert (first.controller_id, first.controller_epoch, list(first.brokers)) == (1, 1, [1])
    node = await broker.session.get(paths.CONTROLLER)
    assert node.stat.ephemeral_owner == broker.session.session_id
    assert (await broker.session.get(paths.CONTROLLER_EPOCH)).data == b"1"


@with_broker
async def test_a_topic_lives_and_dies(broker: OneBroker) -> None:
    controller = broker.controller
    (created,) = await controller.create_topics([NewTopic("t", 2, 1)])
    assert created.error is None
    assert controller.image.topic_by_id(created.topic_id) is controller.image.topic("t")
    (grown,) = await controller.create_partitions([NewPartitions("t", 5)])
    assert grown.error is None
    assert controller.image.partition_count == 5
    (altered,) = await broker.writes.incremental_alter_configs(
        [ConfigChanges(ConfigResource(2, "t"), (ConfigChange("retention.ms", 0, "9"),))]
    )
    assert altered.error is None
    (altered,) = await broker.writes.alter_configs([FullConfig(ConfigResource(2, "t"), (("flush.ms", "3"),))])
    assert altered.error is None
    await broker.settled()
    assert controller.image.topic_config("t") == {"flush.ms": "3"}
    (elected,) = await controller.elect_leaders(0, [TopicPartition("t", 0)])
    assert isinstance(elected.error, errors.ElectionNotNeededError)
    (moved,) = await controller.alter_reassignments([Reassignment(TopicPartition("t", 0), None)])
    assert isinstance(moved.error, errors.NoReassignmentInProgressError)
    assert controller.list_reassignments(None) == []
    (deleted,) = await controller.delete_topics([TopicRef("t")])
    assert (deleted.error, deleted.topic_id) == (None, created.topic_id)
    assert len(controller.image.topics) == 0
    assert await broker.session.children(paths.TOPICS) == []
    assert await broker.session.children("/config/topics") == []
    assert await broker.session.children(paths.DELETE_TOPICS) == []
    (again,) = await controller.create_topics([NewTopic("t", 1, 1)])
    assert again.error is None
    assert again.topic_id != created.topic_id


@with_broker
async def test_the_own_broker_has_applied_a_change_before_it_is_answered(broker: OneBroker) -> None:
    gate, seen = asyncio.Event(), asyncio.Event()

    async def slow(request: ControlRequest) -> None:
        seen.set()
        await gate.wait()

    broker.channel.before_answer = slow
    creating = asyncio.ensure_future(broker.controller.create_topics([NewTopic("t")]))
    await seen.wait()
    assert not creating.done()
    gate.set()
    await creating
    assert [type(request) for request in broker.channel.requests[1:]] == [LeaderAndIsr, UpdateMetadata]


@with_broker
async def test_a_burst_of_requests_shares_transactions(broker: OneBroker) -> None:
    before = broker.store.zxid
    results = await asyncio.gather(*(broker.controller.create_topics([NewTopic(f"t{n % 50}")]) for n in range(100)))
    created = [result for (result,) in results if result.error is None]
    assert len(created) == 50
    assert all(isinstance(each.error, errors.TopicAlreadyExistsError) for (each,) in results[50:])
    assert broker.store.zxid - before <= 2
    assert len(broker.controller.image.topics) == 50


@with_broker
async def test_delete_and_create_of_one_name_in_a_burst(broker: OneBroker) -> None:
    await broker.controller.create_topics([NewTopic("t", 1, 1)])
    deleted, created, refused = await asyncio.gather(
        broker.controller.delete_topics([TopicRef("t")]),
        broker.controller.create_topics([NewTopic("t", 3, 1)]),
        broker.controller.create_topics([NewTopic("t", 4, 1)]),
    )
    assert deleted[0].error is None
    assert created[0].error is None
    assert isinstance(refused[0].error, errors.TopicAlreadyExistsError)
    assert broker.controller.image.partition_count == 3


@with_broker
async def test_a_broker_that_fails_to_apply_a_change_is_logged_and_the_change_stands(broker: OneBroker) -> None:
    async def fail(request: ControlRequest) -> None:
        raise RuntimeError("no")

    logging.getLogger("braidlog.controller").disabled = True
    broker.channel.before_answer = fail
    (result,) = await broker.controller.create_topics([NewTopic("t")])
    logging.getLogger("braidlog.controller").disabled = False
    assert result.error is None
    assert broker.controller.image.topic("t") is not None


@with_broker
async def test_another_hand_in_the_store_is_noticed_and_the_decision_made_anew(broker: OneBroker) -> None:
    await broker.controller.create_topics([NewTopic("t", 1, 1)])
    node = await broker.session.get(paths.topic("t"))
    await broker.session.multi([SetData(paths.topic("t"), node.data)])
    (result,) = await broker.controller.create_partitions([NewPartitions("t", 2)])
    assert result.error is None
    topic = broker.controller.image.topic("t")
    assert topic is not None
    assert (len(topic.partitions), topic.version) == (2, 2)


@with_broker
async def test_a_controller_that_was_overtaken_changes_nothing_more(broker: OneBroker) -> None:
    await broker.session.set(paths.CONTROLLER_EPOCH, b"7")
    with pytest.raises(errors.NotControllerError):
        await broker.controller.create_topics([NewTopic("t")])
    assert await broker.session.exists(paths.topic("t")) is None
    with pytest.raises(errors.NotControllerError):
        await broker.controller.create_topics([NewTopic("t")])


@with_broker
async def test_brokers_that_come_and_go_are_announced(broker: OneBroker) -> None:
    other = broker.store.connect()
    node = await broker.session.get(paths.broker(1))
    await other.create(paths.broker(2), node.data, ephemeral=True)
    await broker.settled()
    assert list(broker.channel.of(UpdateMetadata)[-1].brokers) == [1, 2]
    await other.close()
    await broker.settled()
    assert list(broker.channel.of(UpdateMetadata)[-1].brokers) == [1]


@with_broker
async def test_others_get_their_turn_between_the_pieces_of_a_large_request(broker: OneBroker) -> None:
    controller = broker.controller
    large = asyncio.ensure_future(controller.create_topics([NewTopic(f"t{number}", 1, 1) for number in range(200)]))
    await asyncio.sleep(0)
    (small,) = await controller.create_topics([NewTopic("small", 1, 1)])
    assert small.error is None
    assert not large.done()
    results = await large
    assert [(result.name, result.error) for result in results] == [(f"t{number}", None) for number in range(200)]
    assert [len(request.partitions) for request in broker.channel.of(LeaderAndIsr)] == [50, 1, 50, 50, 50]
    deleted = await controller.delete_topics([TopicRef(f"t{number}") for number in range(200)])
    assert [(result.name, result.error) for result in deleted] == [(f"t{number}", None) for number in range(200)]
    assert list(controller.image.topics) == ["small"]


@with_broker
async def test_a_large_request_that_writes_nothing_lets_others_run(broker: OneBroker) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    results = await broker.controller.create_topics([NewTopic(f"t{number}", 1, 1) for number in range(1000)], True)
    counting.cancel()
    assert len(results) == 1000
    assert turns > 20


@with_broker
async def test_what_a_large_request_names_twice_is_refused_in_every_piece(broker: OneBroker) -> None:
    controller = broker.controller
    names = [f"t{number}" for number in range(70)]
    created = await controller.create_topics([NewTopic(name, 1, 1) for name in ["t", *names, "t"]])
    assert [type(result.error) for result in created] == [
        errors.InvalidRequestError, *[type(None)] * 70, errors.InvalidRequestError,
    ]  # fmt: skip
    grown = await controller.create_partitions([NewPartitions(name, 2) for name in [*names, "t0"]])
    altered = await broker.writes.alter_configs([FullConfig(ConfigResource(2, name), ()) for name in [*names, "t0"]])
    changed = await broker.writes.incremental_alter_configs(
        [ConfigChanges(ConfigResource(2, name), ()) for name in [*names, "t0"]]
    )
    refs = [*(TopicRef(name) for name in names), TopicRef(None, created[1].topic_id)]
    deleted = await controller.delete_topics(refs)
    for results in (grown, altered, changed, deleted):
        assert [type(result.error) for result in results] == [
            errors.InvalidRequestError, *[type(None)] * 69, errors.InvalidRequestError,
        ]  # fmt: skip


@with_broker
async def test_the_partitions_of_all_pieces_of_a_request_are_counted_together(broker: OneBroker) -> None:
    controller = broker.controller
    wanted = [NewTopic(f"t{number}", 700, 1) for number in range(15)]
    results = await controller.create_topics([*wanted, NewTopic("u", 200, 1)], True)
    refused = [type(None)] * 14 + [errors.PolicyViolationError, type(None)]
    assert [type(result.error) for result in results] == refused
    await controller.create_topics([NewTopic(f"t{number}", 1, 1) for number in range(15)])
    grown = await controller.create_partitions([NewPartitions(f"t{number}", 701) for number in range(15)], True)
    assert [type(result.error) for result in grown] == refused[:15]


@with_broker
async def test_the_pieces_before_a_failure_are_told_as_done(broker: OneBroker) -> None:
    async def usurp(request: ControlRequest) -> None:
        await broker.session.multi([SetData(paths.CONTROLLER_EPOCH, b"9")])

    broker.channel.before_answer = usurp
    results = await broker.controller.create_topics([NewTopic(f"t{number}", 1, 1) for number in range(120)])
    assert [type(result.error) for result in results] == [type(None)] * 50 + [errors.NotControllerError] * 70
    assert [result.name for result in results] == [f"t{number}" for number in range(120)]
    assert len(await broker.session.children(paths.TOPICS)) == 50


class FullDisk(MemoryJournalFiles):
    """`room` more appends fit."""

    room = 1000

    def append(self, name: str, data: bytes) -> None:
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= 1
        super().append(name, data)


def test_a_full_disk_fails_the_request_and_not_the_controller() -> None:
    async def run() -> None:
        files = FullDisk()
        async with one_broker(files) as broker:
            files.room = 0
            with pytest.raises(errors.KafkaStorageError, match="No space left"):
                await broker.controller.create_topics([NewTopic("t")])
            files.room = 1000
            (result,) = await broker.controller.create_topics([NewTopic("t")])
            assert result.error is None

    asyncio.run(run())


async def delete_without_room_for_the_removal(broker: OneBroker, files: FullDisk) -> None:
    await broker.controller.create_topics([NewTopic("t", 3, 1)])
    files.room = 1
    (deleted,) = await broker.controller.delete_topics([TopicRef("t")])
    assert deleted.error is None
    assert await broker.session.children(paths.TOPICS) == ["t"]


def test_a_topic_deleted_on_a_full_disk_can_be_created_again_once_there_is_room() -> None:
    async def run() -> None:
        files = FullDisk()
        async with one_broker(files) as broker:
            await delete_without_room_for_the_removal(broker, files)
            (refused,) = await broker.controller.create_topics([NewTopic("t")])
            assert isinstance(refused.error, errors.KafkaStorageError)
            assert "free some space" in (refused.error.message or "")
            files.room = 1000
            (created,) = await broker.controller.create_topics([NewTopic("t", 1, 1)])
            assert created.error is None
            assert (await load(broker.session)).image == broker.controller.image
            assert await broker.session.children(paths.DELETE_TOPICS) == []

    asyncio.run(asyncio.wait_for(run(), 20))


def test_the_nodes_of_a_deleted_topic_go_without_being_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_controller, "_FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(active_controller, "_LONGEST_RETRY_S", 0.01)

    async def run() -> None:
        files = FullDisk()
        async with one_broker(files) as broker:
            await delete_without_room_for_the_removal(broker, files)
            gone = asyncio.Event()
            await broker.session.children(paths.DELETE_TOPICS, lambda event: gone.set())
            files.room = 1000
            await gone.wait()
            assert await broker.session.children(paths.TOPICS) == []

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_full_disk_at_the_start_leaves_an_unfinished_deletion_for_later() -> None:
    async def run() -> None:
        files = FullDisk()
        async with one_broker(files) as broker:
            await delete_without_room_for_the_removal(broker, files)
            files.room = 0
        files.room = 3  # what the last life left, the registration and the controller's claim
        async with one_broker(files) as broker:
            assert files.room == 0
            assert list(broker.controller.image.topics) == []
            files.room = 1000
            assert (await broker.controller.create_topics([NewTopic("t")]))[0].error is None

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_deletion_that_a_crash_interrupted_is_finished_at_the_next_start() -> None:
    async def run() -> None:
        files = MemoryJournalFiles()
        async with one_broker(files) as broker:
            await broker.controller.create_topics([NewTopic("t", 3, 1), NewTopic("u", 1, 1)])
            await broker.session.create(paths.deleted_topic("t"))
        async with one_broker(files) as broker:
            assert list(broker.controller.image.topics) == ["u"]
            *_, deleting = broker.channel.of(StopReplica)
            assert [(each.topic, each.partition, each.delete) for each in deleting.partitions] == [
                ("t", 0, True), ("t", 1, True), ("t", 2, True),
            ]  # fmt: skip
            assert await broker.session.children(paths.TOPICS) == ["u"]
            assert await broker.session.children(paths.DELETE_TOPICS) == []
            assert (await broker.controller.create_topics([NewTopic("t")]))[0].error is None

    asyncio.run(run())


def test_epochs_after_an_unclean_stop() -> None:
    async def run() -> None:
        files = MemoryJournalFiles()
        async with one_broker(files) as broker:
            await broker.controller.create_topics([NewTopic("t", 2, 1)])
        broker = OneBroker(files, ManualClock())
        await broker.start(bump_leader_epochs=True)
        topic = broker.controller.image.topic("t")
        assert topic is not None
        assert [each.leader_epoch for each in topic.partitions] == [1, 1]
        assert (await load(broker.session)).image == broker.controller.image
        await broker.controller.stop()
        await broker.store.close()

    asyncio.run(run())


names = st.sampled_from(["a", "b", "c.d", "c_d"])
actions = st.one_of(
    st.tuples(st.just("create"), names, st.integers(-1, 3)),
    st.tuples(st.just("grow"), names, st.integers(0, 5)),
    st.tuples(st.just("delete"), names, st.just(0)),
    st.tuples(st.just("set"), names, st.integers(0, 3)),
    st.tuples(st.just("unset"), names, st.just(0)),
    st.tuples(st.just("set of a group"), names, st.integers(45_000, 45_003)),
    st.tuples(st.just("unset of a group"), names, st.just(0)),
    st.tuples(st.just("crash"), st.just(""), st.integers(0, 99)),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(actions, max_size=14))
def test_the_controller_always_knows_what_the_store_says(steps: list[tuple[str, str, int]]) -> None:
    async def run() -> None:
        broker = OneBroker(MemoryJournalFiles(), ManualClock())
        await broker.start()
        for action, name, number in steps:
            controller = broker.controller
            resource, group = ConfigResource(2, name), ConfigResource(32, f"{name}/of")
            if action == "create":
                await controller.create_topics(
                    [NewTopic(name, number, 1, configs={"flush.ms": "3"} if number > 1 else {})]
                )
            elif action == "grow":
                await controller.create_partitions([NewPartitions(name, number)])
            elif action == "delete":
                await controller.delete_topics([TopicRef(name)])
            elif action == "set":
                change = ConfigChange("retention.ms", 0, str(number))
                await broker.writes.incremental_alter_configs([ConfigChanges(resource, (change,))])
            elif action == "unset":
                await broker.writes.alter_configs([FullConfig(resource, ())])
            elif action == "set of a group":
                change = ConfigChange("consumer.session.timeout.ms", 0, str(number))
                (result,) = await broker.writes.incremental_alter_configs([ConfigChanges(group, (change,))])
                assert result.error is None
            elif action == "unset of a group":
                await broker.writes.alter_configs([FullConfig(group, ())])
            else:
                before = controller.image
                await controller.stop()
                broker.files.crash(random.Random(number))
                broker = OneBroker(broker.files, ManualClock())
                await broker.start()
                assert dict(broker.controller.image.topics.items()) == dict(before.topics.items())
                assert broker.controller.image.configs == before.configs
            await broker.settled()
            loaded = await load(broker.session)
            assert loaded.image == broker.controller.image
            assert loaded.deleting == ()
        await broker.controller.stop()
        await broker.store.close()

    asyncio.run(run())
