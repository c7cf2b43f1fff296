"""Fetches of followers, and the produces with acks=all that wait for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.config.log_settings import LogSettings
from braidlog.core.protocol_errors import (
    FencedLeaderEpochError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    ProtocolError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownLeaderEpochError,
)
from braidlog.core.slices import ByteSlice
from braidlog.net.channel import ANONYMOUS
from braidlog.replication.partition import Partition, ReplicationContext
from braidlog.security.acls import CLUSTER_NAME, AclOperation, AclResourceType, AclRules
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from braidlog.wire.generated.produce import PartitionProduceResponse, ProduceResponse
from support.authorized_broker import CountingAuthorizer, allow
from support.data_path import TOPIC, TOPIC_ID, DataPath, Peer, batch, produce_request

EPOCH = 1


class Led(DataPath):
    """Broker 1 leads both partitions in epoch 1; 2 and 3 have replicas."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, LogSettings(min_insync_replicas=2))
        self.proposals: list[Partition] = []
        for partition in self.partitions:
            self.lead(partition)

    def lead(self, partition: Partition, epoch: int = EPOCH, isr: tuple[int, ...] = (1, 2)) -> None:
        partition.context = ReplicationContext(self.clock, 10.0, propose_isr=self.proposals.append)
        partition.update_leader_and_isr(1, epoch, isr, (1, 2, 3))


class Follower:
    """A broker that fetches, with a session unless told otherwise."""

    def __init__(self, world: Led, replica_id: int = 2, *, version: int = 17, session: bool = True) -> None:
        self._world = world
        self.peer = Peer(world)
        self.replica_id = replica_id
        self._version = version
        self.session_id = 0
        self._session_epoch = 0 if session else -1
        self.broker_epoch = 5

    def ask(
        self,
        offsets: dict[int, int],
        *,
        epoch: int = EPOCH,
        last_epoch: int = -1,
        forgotten: tuple[int, ...] = (),
        max_bytes: int = 1 << 20,
        wait_ms: int = 500,
    ) -> None:
        by_id = self._version >= 13
        partitions = [
            FetchPartition(
                partition=index,
                fetch_offset=offset,
                current_leader_epoch=epoch,
                last_fetched_epoch=last_epoch,
                log_start_offset=0,
                partition_max_bytes=1 << 20,
            )
            for index, offset in offsets.items()
        ]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self._session_epoch,
            topics=[FetchTopic(topic="" if by_id else TOPIC, topic_id=TOPIC_ID, partitions=partitions)]
            if partitions
            else [],
            forgotten_topics_data=[
                ForgottenTopic(topic="" if by_id else TOPIC, topic_id=TOPIC_ID, partitions=list(forgotten))
            ]
            if forgotten
            else [],
        )
        if self._version >= 15:
            request.replica_state = ReplicaState(replica_id=self.replica_id, replica_epoch=self.broker_epoch)
        else:
            request.replica_id = self.replica_id
        self.peer.ask(ApiKey.FETCH, self._version, request)
        self._world.steps.run()

    @property
    def waits(self) -> bool:
        return not self.peer.answers

    def answer(self) -> dict[int, PartitionData]:
        response = self.peer.answers.popleft()
        assert isinstance(response, FetchResponse)
        assert response.error_code == 0
        if self._session_epoch >= 0:
            self.session_id = response.session_id
            self._session_epoch += 1
        return {data.partition_index: data for topic in response.responses for data in topic.partitions}

    def fetch(
        self, offsets: dict[int, int], *, epoch: int = EPOCH, last_epoch: int = -1, max_bytes: int = 1 << 20
    ) -> dict[int, PartitionData]:
        """Without waiting."""
        self.ask(offsets, epoch=epoch, last_epoch=last_epoch, max_bytes=max_bytes, wait_ms=0)
        return self.answer()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Led]:
    made = Led(tmp_path)
    yield made
    made.close()


class Producer:
    def __init__(self, world: Led) -> None:
        self._world = world
        self.peer = Peer(world)

    def send(self, *values: bytes, to: tuple[int, ...] = (0,), acks: int = -1) -> None:
        plain = batch(*values, producer_id=-1, epoch=-1, sequence=-1, transactional=False)
        self.peer.ask(ApiKey.PRODUCE, 11, produce_request(dict.fromkeys(to, plain), None, acks))
        self._world.steps.run()

    @property
    def waits(self) -> bool:
        return not self.peer.answers

    def answers(self) -> list[PartitionProduceResponse]:
        response = self.peer.answers.popleft()
        assert isinstance(response, ProduceResponse)
        return response.responses[0].partition_responses

    def errors(self) -> list[int]:
        return [each.error_code for each in self.answers()]


def size(data: PartitionData) -> int:
    records = data.records
    return records.size if isinstance(records, ByteSlice) else 0


def test_acks_all_is_answered_when_the_in_sync_follower_has_the_records(world: Led) -> None:
    producer, follower = Producer(world), Follower(world)
    assert follower.fetch({0: 0, 1: 0}).keys() == {0, 1}
    follower.ask({})
    assert follower.waits
    producer.send(b"a", b"b")
    assert producer.waits
    # The write alone woke the follower, with what is not committed yet.
    (sent,) = follower.answer().values()
    assert (sent.partition_index, sent.high_watermark, size(sent) > 0) == (0, 0, True)
    follower.ask({0: 2})
    assert producer.errors() == [0]
    assert world.log().high_watermark == 2
    assert follower.waits, "a high watermark wakes no follower"
    world.steps.wait()
    (told,) = follower.answer().values()
    assert (told.partition_index, told.high_watermark, size(told)) == (0, 2, 0)


def test_a_follower_is_told_of_a_log_start_that_moved_though_nothing_is_appended(world: Led) -> None:
    producer, follower = Producer(world), Follower(world)
    follower.fetch({0: 0, 1: 0})
    producer.send(b"a", acks=1)
    follower.fetch({})
    follower.fetch({0: 1})
    assert follower.fetch({}) == {}
    log = world.log()
    log.roll()
    log.delete_segments(1)
    world.partitions[0].log_start_moved()
    (told,) = follower.fetch({}).values()
    assert (told.partition_index, told.log_start_offset) == (0, 1)
    assert follower.fetch({}) == {}


def test_the_answer_to_a_fetch_carries_the_high_watermark_that_it_moved(world: Led) -> None:
    Producer(world).send(b"a", b"b", acks=1)
    assert world.log().high_watermark == 0
    follower = Follower(world)
    follower.fetch({0: 0, 1: 0})
    Producer(world).send(b"c", acks=1)
    (sent,) = follower.fetch({0: 2}).values()
    assert (sent.high_watermark, size(sent) > 0) == (2, True)


def test_several_produces_of_one_connection_wait_together_and_are_answered_in_order(world: Led) -> None:
    producer, follower = Producer(world), Follower(world)
    follower.fetch({0: 0, 1: 0})
    for text in (b"a", b"b", b"c"):
        producer.send(text)
    follower.fetch({})
    follower.ask({0: 2})
    assert [each.base_offset for each in producer.answers()] == [0]
    assert [each.base_offset for each in producer.answers()] == [1]
    assert producer.waits
    follower.answer()
    follower.ask({0: 3})
    assert [each.base_offset for each in producer.answers()] == [2]


def test_a_produce_to_two_partitions_waits_for_both(world: Led) -> None:
    producer, follower = Producer(world), Follower(world)
    follower.fetch({0: 0, 1: 0})
    producer.send(b"a", to=(0, 1))
    assert follower.fetch({}).keys() == {0, 1}
    follower.ask({0: 1})
    assert producer.waits
    follower.answer()
    follower.ask({1: 1})
    assert producer.errors() == [0, 0]


def test_a_produce_whose_time_is_over_is_told_so_and_the_records_stay(world: Led) -> None:
    producer, follower = Producer(world), Follower(world)
    follower.fetch({0: 0, 1: 0})
    producer.send(b"a")
    world.clock.advance(0.9)
    world.produce_timers.wait()
    assert producer.waits
    world.clock.advance(0.2)
    world.produce_timers.wait()
    world.steps.run()
    (late,) = producer.answers()
    assert (late.error_code, late.base_offset) == (RequestTimedOutError.code, 0)
    assert not world.partitions[0].waits
    follower.fetch({})
    follower.ask({0: 1})
    assert world.log().high_watermark == 1


def test_a_leader_that_is_replaced_tells_who_waits_and_names_the_next(world: Led) -> None:
    producer = Producer(world)
    producer.send(b"a")
    world.partitions[0].update_leader_and_isr(3, 2, (3,), (1, 2, 3))
    world.steps.run()
    (refused,) = producer.answers()
    assert refused.error_code == NotLeaderOrFollowerError.code
    assert refused.current_leader is not None
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (3, 2)


def test_too_few_in_sync_replicas_refuse_acks_all_before_the_append(world: Led) -> None:
    world.lead(world.partitions[0], 2, (1,))
    producer = Producer(world)
    producer.send(b"a")
    assert producer.errors() == [NotEnoughReplicasError.code]
    assert world.log().log_end_offset == 0
    producer.send(b"a", acks=1)
    assert producer.errors() == [0]
    assert (world.log().log_end_offset, world.log().high_watermark) == (1, 0)


def test_one_answer_has_what_a_whole_round_wrote(world: Led) -> None:
    follower = Follower(world)
    follower.fetch({0: 0, 1: 0})
    follower.ask({})
    Producer(world).send(b"a", to=(0, 1))
    assert follower.answer().keys() == {0, 1}


def test_a_fetch_visits_what_it_names_and_what_changed(world: Led) -> None:
    follower = Follower(world)
    follower.fetch({0: 0, 1: 0})
    first, second = (partition.followers[0] for partition in world.partitions)
    session = first.follower
    assert session is not None
    assert not session.dirty, "both have everything"
    Producer(world).send(b"a", acks=1)
    assert list(session.dirty) == [first]
    assert follower.fetch({}).keys() == {0}
    Producer(world).send(b"b", to=(1,), acks=1)
    assert follower.fetch({0: 1}).keys() == {0, 1}, "0 has another high watermark"
    assert list(session.dirty) == [second]


def test_what_does_not_fit_is_sent_with_the_next_answer(world: Led) -> None:
    follower = Follower(world)
    follower.fetch({0: 0, 1: 0})
    Producer(world).send(b"a", to=(0, 1), acks=1)
    (sent,) = follower.fetch({}, max_bytes=1).values()
    assert sent.partition_index == 0
    (sent,) = follower.fetch({}, max_bytes=1).values()
    assert sent.partition_index == 1, "who was served goes last"
    (sent,) = follower.fetch({}, max_bytes=1).values()
    assert sent.partition_index == 0, "it did not say that it has it"


def test_partitions_that_a_session_forgets_are_watched_no_more(world: Led) -> None:
    follower = Follower(world)
    follower.fetch({0: 0, 1: 0})
    follower.ask({}, forgotten=(1,))
    assert [len(partition.followers) for partition in world.partitions] == [1, 0]
    world.steps.wait()
    follower.answer()
    follower.ask({}, forgotten=(0,))
    assert follower.answer() == {}, "nothing is left to wait for"
    assert world.partitions[0].followers == []


@pytest.mark.parametrize("version", [12, 17])
def test_a_follower_without_a_session_is_woken_and_then_forgotten(world: Led, version: int) -> None:
    follower = Follower(world, session=False, version=version)
    follower.ask({0: 0, 1: 0})
    assert follower.waits
    Producer(world).send(b"a", acks=1)
    sent = follower.answer()
    assert [size(sent[index]) > 0 for index in (0, 1)] == [True, False]
    assert [partition.followers for partition in world.partitions] == [[], []]


def test_a_follower_that_hangs_up_is_forgotten(world: Led) -> None:
    follower = Follower(world, session=False)
    follower.ask({0: 0})
    follower.peer.close("gone")
    assert world.partitions[0].followers == []
    with_session = Follower(world)
    with_session.fetch({0: 0})
    with_session.ask({})
    with_session.peer.close("gone")
    Producer(world).send(b"a", acks=1)
    assert with_session.waits


def test_a_new_leader_epoch_wakes_and_refuses_the_old_one(world: Led) -> None:
    follower = Follower(world)
    follower.fetch({0: 0, 1: 0})
    follower.ask({})
    world.lead(world.partitions[0], 2)
    world.steps.run()
    (refused,) = follower.answer().values()
    assert (refused.partition_index, refused.error_code) == (0, FencedLeaderEpochError.code)
    (again,) = follower.fetch({0: 0}, epoch=2).values()
    assert again.error_code == 0


def test_a_log_that_went_another_way_is_told_where_and_moves_nothing(world: Led) -> None:
    Producer(world).send(b"a", b"b", acks=1)
    world.lead(world.partitions[0], 5)
    follower = Follower(world)
    (sent,) = follower.fetch({0: 9}, epoch=5, last_epoch=3).values()
    assert sent.diverging_epoch is not None
    assert (sent.diverging_epoch.epoch, sent.diverging_epoch.end_offset) == (1, 2)
    progress = world.partitions[0].progress
    assert progress is not None
    assert progress.remotes[2].log_end_offset == -1
    (sent,) = follower.fetch({0: 9}, epoch=5).values()
    assert sent.error_code == OffsetOutOfRangeError.code
    assert progress.remotes[2].log_end_offset == -1


@pytest.mark.parametrize(
    ("version", "epoch", "error"), [(17, EPOCH, UnknownLeaderEpochError), (8, -1, NotLeaderOrFollowerError)]
)
def test_who_is_no_replica_is_refused(world: Led, version: int, epoch: int, error: type[ProtocolError]) -> None:
    (sent,) = Follower(world, 9, version=version).fetch({0: 0}, epoch=epoch).values()
    assert sent.error_code == error.code


def test_an_earlier_registration_is_fenced(world: Led) -> None:
    Follower(world).fetch({0: 0, 1: 0})
    zombie = Follower(world)
    zombie.broker_epoch = 4
    assert {each.error_code for each in zombie.fetch({0: 0, 1: 0}).values()} == {NotLeaderOrFollowerError.code}


def test_a_replica_that_has_caught_up_is_proposed(world: Led) -> None:
    Follower(world, 3).fetch({0: 0})
    assert world.proposals == [world.partitions[0]]
    progress = world.partitions[0].progress
    assert progress is not None
    assert progress.proposed == (1, 2, 3)


def test_a_new_registration_is_known_to_idle_partitions_too(world: Led) -> None:
    """Nothing is appended, and nothing of them is named; the session goes on over the new registration."""
    follower = Follower(world)
    follower.fetch({0: 0, 1: 0})
    follower.broker_epoch = 6
    follower.fetch({})
    for partition in world.partitions:
        assert partition.progress is not None
        assert partition.progress.remotes[2].broker_epoch == 6
    follower.fetch({})
    assert not any(target.dirty for partition in world.partitions for target in partition.followers)


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_fetch_that_comes_late_over_another_connection_holds_only_until_the_next(
    world: Led, is_waiting: bool
) -> None:
    """It asks from where its follower was before it went on in another session, in which nothing changes any more."""
    producer, follower, late = Producer(world), Follower(world), Follower(world)
    follower.fetch({0: 0, 1: 0})
    producer.send(b"a", acks=1)
    follower.fetch({})
    follower.fetch({0: 1})
    assert follower.fetch({}) == {}
    progress = world.partitions[0].progress
    assert progress is not None
    if is_waiting:
        follower.ask({})
    late.fetch({0: 0, 1: 0})
    assert progress.remotes[2].log_end_offset == 0
    if is_waiting:
        # It asked before the late one came, and says nothing of what was said since.
        world.steps.wait()
        assert follower.answer() == {}
        assert progress.remotes[2].log_end_offset == 0
    assert follower.fetch({}) == {}
    assert progress.remotes[2].log_end_offset == 1
    session = world.partitions[0].followers[0].follower
    assert session is not None
    assert not session.dirty


def test_an_idle_session_keeps_its_partitions_in_sync(world: Led) -> None:
    """Nothing of a partition is visited for long; then there is an append."""
    follower = Follower(world)
    follower.fetch({0: 0, 1: 0})
    for _ in range(5):
        world.clock.advance(9)
        follower.ask({})
        world.steps.wait()
        follower.answer()
    Producer(world).send(b"a", acks=1)
    world.partitions[0].check_isr()
    assert world.proposals == []
    world.clock.advance(10.1)
    world.partitions[0].check_isr()
    assert world.proposals == [world.partitions[0]]


def test_sessions_of_others_are_not_for_this_replica(world: Led) -> None:
    follower = Follower(world)
    follower.fetch({0: 0})
    other = Follower(world, 3)
    other.session_id, other._session_epoch = follower.session_id, 1
    other.ask({})
    response = other.peer.answers.popleft()
    assert isinstance(response, FetchResponse)
    assert response.error_code == 70


# Consumers that read from followers (KIP-392)


def consume(
    world: Led, offset: int, *, rack: str = "", version: int = 12, epoch: int = -1, replica_id: int = -1
) -> PartitionData:
    partition = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        rack_id=rack,
        replica_id=replica_id if version < 15 else -1,
        replica_state=ReplicaState(replica_id=replica_id) if version >= 15 else None,
        topics=[FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])],
    )
    peer = Peer(world)
    peer.ask(ApiKey.FETCH, version, request)
    world.steps.run()
    if not peer.answers:
        world.steps.wait()
    response = peer.answers.popleft()
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


def test_a_consumer_is_sent_to_the_replica_in_its_rack(world: Led) -> None:
    follower = Follower(world)
    Producer(world).send(b"a", acks=1)
    follower.fetch({0: 1, 1: 0})
    world.fetch_handler.reader.rack_of = {1: "here", 2: "there"}.get
    sent = consume(world, 0, rack="there")
    assert (sent.error_code, sent.preferred_read_replica, size(sent)) == (0, 2, 0)
    stays = consume(world, 0, rack="here")
    assert (stays.preferred_read_replica, size(stays) > 0) == (-1, True)
    assert consume(world, 0).preferred_read_replica == -1


def test_a_follower_shows_what_is_committed_as_far_as_it_knows(world: Led) -> None:
    partition = world.partitions[0]
    Producer(world).send(b"a", acks=1)
    Producer(world).send(b"b", acks=1)
    partition.update_leader_and_isr(2, 7, (2,), (1, 2, 3))
    assert size(consume(world, 0)) == 0
    log = partition.log
    assert log is not None
    log.advance_high_watermark(1)
    shown = consume(world, 0, epoch=7)
    assert (shown.error_code, shown.high_watermark, size(shown) > 0) == (0, 1, True)
    assert size(consume(world, 1)) == 0
    assert consume(world, 0, epoch=6).error_code == FencedLeaderEpochError.code
    assert consume(world, 0, version=10).error_code == NotLeaderOrFollowerError.code, "it would not find back"
    partition.stop()
    assert consume(world, 0).error_code == NotLeaderOrFollowerError.code


@pytest.mark.parametrize("version", [12, 17])
def test_who_compares_replicas_reads_as_a_consumer_from_each(world: Led, version: int) -> None:
    """Kafka's kafka-replica-verification has the replica id -2."""
    partition = world.partitions[0]
    Producer(world).send(b"a", acks=1)
    Producer(world).send(b"b", acks=1)
    assert partition.log is not None
    for leader, epoch in ((1, 6), (2, 7)):
        partition.update_leader_and_isr(leader, epoch, (1, 2), (1, 2, 3))
        partition.log.advance_high_watermark(1)
        shown = consume(world, 0, version=version, replica_id=-2)
        assert (shown.error_code, shown.high_watermark, size(shown) > 0) == (0, 1, True)
        assert size(consume(world, 1, version=version, replica_id=-2)) == 0


# Access


def test_a_follower_that_may_not_act_for_the_cluster_reads_nothing_and_counts_for_nothing(tmp_path: Path) -> None:
    world = Led(tmp_path)
    authorizer = CountingAuthorizer(allow(AclResourceType.TOPIC, "*", AclOperation.ALL, ANONYMOUS))
    world.fetch_handler.authorizer = authorizer
    follower = Follower(world)
    refused = TopicAuthorizationFailedError.code
    for wanted in ({0: 0, 1: 0}, {}):
        follower.ask(wanted)
        world.steps.run()
        response = follower.peer.answers.popleft()
        assert isinstance(response, FetchResponse)
        follower.session_id = response.session_id
        follower._session_epoch += 1
        codes = [each.error_code for topic in response.responses for each in topic.partitions]
        assert codes == [refused, refused]
    assert world.partitions[0].remote_replica(2, EPOCH).log_end_offset < 0, "it has told of nothing"
    authorizer.rules = AclRules([allow(AclResourceType.CLUSTER, CLUSTER_NAME, AclOperation.CLUSTER_ACTION, ANONYMOUS)])
    follower.ask({0: 0})
    world.steps.run()
    world.steps.wait()
    response = follower.peer.answers.popleft()
    assert isinstance(response, FetchResponse)
    assert [each.error_code for topic in response.responses for each in topic.partitions] == [0, 0]
    world.close()


def test_a_batch_that_did_not_fit_comes_first_the_next_time(world: Led) -> None:
    """Also where there was room left for something smaller."""
    follower = Follower(world)
    follower.fetch({0: 0, 1: 0})
    Producer(world).send(b"small", acks=1)
    Producer(world).send(b"x" * 2000, to=(1,), acks=1)
    assert follower.fetch({}, max_bytes=1000).keys() == {0}
    Producer(world).send(b"small", acks=1)
    sent = follower.fetch({0: 1}, max_bytes=1000)
    assert size(sent[1]) > 2000, "it does not wait until partition 0 has nothing"


def test_who_was_served_keeps_its_place_where_everything_fitted(world: Led) -> None:
    follower = Follower(world)
    follower.fetch({0: 0, 1: 0})
    Producer(world).send(b"a", to=(0, 1), acks=1)
    session = world.partitions[0].followers[0].follower
    assert session is not None
    before = list(session.dirty)
    assert follower.fetch({}).keys() == {0, 1}
    assert list(session.dirty) == before


def throttle(world: Led, rate: int, isr: tuple[int, ...] = (1, 2)) -> Partition:
    """The first partition is on its topic's list of throttled leaders."""
    partition = world.partitions[0]
    world.lead(partition, isr=isr)
    partition.leader_throttled = True
    partition.context.leader_quota.limit = rate
    return partition


def commit(world: Led, ends: dict[int, int]) -> None:
    """The follower in sync has all of it: one that begins is far from joining the ISR."""
    Follower(world, replica_id=2).fetch(ends)


def test_a_throttled_leader_sends_what_the_rate_allows_to_who_is_not_in_sync(world: Led) -> None:
    partition = throttle(world, 1000)
    producer, follower = Producer(world), Follower(world, replica_id=3)
    for _ in range(6):
        producer.send(bytes(900), to=(0,), acks=1)
    producer.send(bytes(900), to=(1,), acks=1)
    commit(world, {0: 6, 1: 1})
    sent = follower.fetch({0: 0, 1: 0})
    # A second's worth, one batch at least; the partition that is not throttled comes whole.
    assert size(sent[0]) == size(sent[1])
    offset = 1
    # What the batch was over is waited for: a fetch finds nothing, an append wakes nobody.
    follower.ask({0: offset, 1: 1})
    assert follower.waits
    producer.send(bytes(900), to=(0,), acks=1)
    assert follower.waits
    producer.send(b"other", to=(1,), acks=1)
    assert follower.answer().keys() == {1}
    copied, began = size(sent[0]), world.clock.monotonic()
    while offset < 6:
        world.clock.advance(0.25)
        data = follower.fetch({0: offset, 1: 2}).get(0)
        if data is not None and size(data):
            copied += size(data)
            offset += round(size(data) / size(sent[0]))
        assert world.clock.monotonic() - began < 60
    elapsed_s = world.clock.monotonic() - began
    # A second's worth at first, and the batch that may be over.
    assert elapsed_s * 1000 <= copied <= (elapsed_s + 1) * 1000 + size(sent[0])
    assert partition.context.leader_quota.byte_rate() <= 1400


def test_a_follower_in_sync_is_neither_throttled_nor_counted(world: Led) -> None:
    partition = throttle(world, 1)
    producer, follower = Producer(world), Follower(world, replica_id=2)
    for offset in range(3):
        producer.send(bytes(900), acks=1)
        assert size(follower.fetch({0: offset})[0]) > 900
    assert partition.context.leader_quota.byte_rate() == 0


def test_a_partition_off_the_list_is_not_counted_and_a_rate_of_nothing_stops_those_on_it(world: Led) -> None:
    partition = throttle(world, 0)
    producer, follower = Producer(world), Follower(world, replica_id=3)
    producer.send(bytes(900), acks=1)
    commit(world, {0: 1})
    assert size(follower.fetch({0: 0, 1: 0})[0]) == 0
    world.clock.advance(100)
    assert follower.fetch({0: 0}) == {}
    partition.leader_throttled = False
    assert size(follower.fetch({0: 0})[0]) > 900
    assert partition.context.leader_quota.byte_rate() == 0


def test_a_follower_that_is_about_to_join_is_not_held(world: Led) -> None:
    """The high watermark waits for it, and so do producers."""
    throttle(world, 1)
    producer, follower = Producer(world), Follower(world, replica_id=3)
    producer.send(bytes(900), acks=1)
    # Nothing is committed yet, so that it has all that is: it is proposed.
    follower.fetch({0: 0})
    assert [each.index for each in world.proposals] == [0]
    assert size(follower.fetch({0: 0})[0]) > 900
