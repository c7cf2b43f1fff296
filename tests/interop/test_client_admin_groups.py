"""braidlog's Admin: groups of both protocols, their offsets and members, and transactions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from braidlog.client import admin as ours
from braidlog.client.admin import Admin, GroupState, GroupType, OffsetSpec, TransactionState
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.core import protocol_errors as errors
from braidlog.core.types import TopicPartition
from support import confluent
from support.broker import Broker
from support.eventually import eventually
from support.group_setup import commit, fill, members, newer_member, open_transaction

SECONDS = 30.0


@pytest.fixture
def admin(quick_broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=quick_broker.bootstrap) as opened:
        yield opened


@pytest.fixture
def filled(quick_broker: Broker, topic: str) -> str:
    """A topic of two partitions with ten records in each."""
    confluent.create_topic(quick_broker.bootstrap, topic, partitions=2)
    fill(quick_broker.bootstrap, topic, {0: 10, 1: 10})
    return topic


def described(admin: Admin, group: str) -> ours.GroupDescription:
    return admin.describe_groups([group], authorized_operations=True)[group]


# Groups


def test_a_classic_group_with_members(quick_broker: Broker, admin: Admin, filled: str) -> None:
    group = f"{filled}-g"
    with members(quick_broker.bootstrap, group, filled, ["ann", "bob"], partition_assignment_strategy="range"):
        eventually(lambda: described(admin, group).state == GroupState.STABLE)
        found = described(admin, group)
        assert (found.type, found.protocol_type, found.assignor) == (GroupType.CLASSIC, "consumer", "range")
        assert {member.client_id for member in found.members} == {"ann", "bob"}
        assert sorted(each for member in found.members for each in member.assignment or ()) == [
            TopicPartition(filled, 0),
            TopicPartition(filled, 1),
        ]
        assert found.authorized_operations is not None
        assert ours.AclOperation.READ in found.authorized_operations
        listed = {each.group_id: each for each in admin.list_groups(states=[GroupState.STABLE])}
        assert listed[group].type == GroupType.CLASSIC
        assert group not in {each.group_id for each in admin.list_groups(states=[GroupState.EMPTY])}
        assert group not in {each.group_id for each in admin.list_groups(types=[GroupType.CONSUMER])}

        refused = admin.delete_groups([group, group + "-none"])
        assert isinstance(refused.errors[group], errors.NonEmptyGroupError)
        assert isinstance(refused.errors[group + "-none"], errors.GroupIdNotFoundError)
        place = TopicPartition(filled, 0)
        altered = admin.alter_group_offsets(group, {place: 3})
        assert isinstance(altered.errors[place], errors.UnknownMemberIdError)
    eventually(lambda: described(admin, group).state == GroupState.EMPTY)
    assert admin.delete_groups([group]) == {group: None}
    assert isinstance(admin.describe_groups([group]).errors[group], errors.GroupIdNotFoundError)


def test_a_group_of_the_newer_protocol(quick_broker: Broker, admin: Admin, filled: str) -> None:
    group = f"{filled}-g"
    with newer_member(quick_broker.bootstrap, group, filled) as member_id:
        eventually(lambda: described(admin, group).state == GroupState.STABLE)
        found = described(admin, group)
        assert found.type == GroupType.CONSUMER
        (member,) = found.members
        assert member.member_id == member_id
        assert member.assignment == member.target == (TopicPartition(filled, 0), TopicPartition(filled, 1))
        assert member.epoch is not None
        assert group in {each.group_id for each in admin.list_groups(types=[GroupType.CONSUMER])}
        refused = admin.remove_members(group).errors[member_id]
        assert "no such member of the classic protocol" in str(refused)


def test_members_are_removed(quick_broker: Broker, admin: Admin, filled: str) -> None:
    group = f"{filled}-g"
    settings = {"group_instance_id": "desk", "session_timeout_ms": "60000"}
    with members(quick_broker.bootstrap, group, filled, ["ann"], **settings):
        eventually(lambda: described(admin, group).state == GroupState.STABLE)
        removed = admin.remove_members(group, instance_ids=["desk", "nobody"])
        assert removed["desk"] is None
        assert isinstance(removed.errors["nobody"], errors.UnknownMemberIdError)
    with members(quick_broker.bootstrap, group, filled, ["bob"]):
        eventually(lambda: described(admin, group).state == GroupState.STABLE)
        (member,) = described(admin, group).members
        assert admin.remove_members(group) == {member.member_id: None}
    with pytest.raises(errors.GroupIdNotFoundError):
        admin.remove_members(group + "-none")


# Offsets


def test_offsets_are_read_changed_and_deleted(quick_broker: Broker, admin: Admin, filled: str) -> None:
    group = f"{filled}-g"
    first, second, missing = (TopicPartition(filled, number) for number in (0, 1, 9))
    commit(quick_broker.bootstrap, group, filled, {0: 4}, "their note")
    found = admin.list_group_offsets([group, group + "-none"])
    # librdkafka sends the zero that ends its text along.
    assert {place: each._replace(metadata=each.metadata.rstrip("\0")) for place, each in found[group].items()} == {
        first: OffsetAndMetadata(4, "their note")
    }
    assert found[group + "-none"] == {}

    changed = admin.alter_group_offsets(group, {first: OffsetAndMetadata(7, "our note", 0), second: 2, missing: 0})
    assert list(changed) == [first, second, missing]
    assert isinstance(changed.errors.pop(missing), errors.UnknownTopicOrPartitionError)
    theirs = confluent.admin(quick_broker.bootstrap)
    asked = ConsumerGroupTopicPartitions(group, [TheirPartition(filled, 0), TheirPartition(filled, 1)])
    seen = theirs.list_consumer_group_offsets([asked])[group].result(SECONDS).topic_partitions
    assert [(each.partition, each.offset) for each in seen] == [(0, 7), (1, 2)]
    assert admin.list_group_offsets([group])[group][first] == OffsetAndMetadata(7, "our note", 0)

    assert admin.delete_group_offsets(group, [first]) == {first: None}
    assert admin.list_group_offsets({group: [first, second]}, require_stable=True)[group] == {
        second: OffsetAndMetadata(2)
    }
    with pytest.raises(errors.GroupIdNotFoundError):
        admin.delete_group_offsets(group + "-none", [first])
    assert admin.alter_group_offsets(group + "-new", {first: 1}) == {first: None}
    assert admin.delete_groups([group, group + "-new"]).errors == {}


def test_offsets_of_a_topic_that_is_being_read(quick_broker: Broker, admin: Admin, filled: str) -> None:
    group = f"{filled}-g"
    place = TopicPartition(filled, 0)
    with members(quick_broker.bootstrap, group, filled, ["ann"]) as (member,):
        member.commit(offsets=[TheirPartition(filled, 0, 5)], asynchronous=False)
        refused = admin.delete_group_offsets(group, [place]).errors[place]
        assert isinstance(refused, errors.GroupSubscribedToTopicError)
        assert "stop its members first" in str(refused)


# Transactions


def test_an_open_transaction_is_seen_and_fenced(quick_broker: Broker, admin: Admin, filled: str) -> None:
    name = f"{filled}-t"
    place = TopicPartition(filled, 0)
    sender = open_transaction(quick_broker.bootstrap, name, filled)
    listed = {each.transactional_id: each for each in admin.list_transactions(states=[TransactionState.ONGOING])}
    found = admin.describe_transactions([name, name + "-none"])
    transaction = found[name]
    assert listed[name].producer_id == transaction.producer_id
    assert transaction.state == TransactionState.ONGOING
    assert transaction.partitions == (place,)
    assert isinstance(found.errors[name + "-none"], errors.TransactionalIdNotFoundError)
    (mine,) = admin.list_transactions(producer_ids=[transaction.producer_id])
    assert mine.transactional_id == name
    assert admin.list_transactions(producer_ids=[transaction.producer_id], longer_than_ms=3_600_000) == []

    active = admin.describe_producers([place])[place]
    (open_one,) = [each for each in active if each.producer_id == transaction.producer_id]
    assert open_one.transaction_start == 10
    assert admin.coordinated(active) == {open_one: name}
    stable = admin.list_offsets({place: OffsetSpec.LATEST}, isolation=ours.IsolationLevel.READ_COMMITTED)
    assert stable[place].offset == 10

    fenced = admin.fence_producers([name])[name]
    assert fenced.producer_epoch > transaction.producer_epoch or fenced.producer_id != transaction.producer_id
    eventually(lambda: not admin.describe_transactions([name])[name].state.is_open)
    with pytest.raises(KafkaException):
        sender.commit_transaction(SECONDS)
    eventually(
        lambda: (
            admin.list_offsets({place: OffsetSpec.LATEST}, isolation=ours.IsolationLevel.READ_COMMITTED)[place].offset
            == 12
        )
    )


def test_a_transaction_is_aborted_in_one_partition(quick_broker: Broker, admin: Admin, filled: str) -> None:
    place = TopicPartition(filled, 0)
    sender = open_transaction(quick_broker.bootstrap, f"{filled}-t", filled)
    (open_one,) = [each for each in admin.describe_producers([place])[place] if each.transaction_start >= 0]
    admin.abort_transaction(open_one)
    (ended,) = [each for each in admin.describe_producers([place])[place] if each.producer_id == open_one.producer_id]
    assert ended.transaction_start == -1
    # The coordinator did not hear of it, and ends its transaction as ever.
    sender.abort_transaction(SECONDS)
