from __future__ import annotations

import pytest

from braidlog.coordinator.effects import Caller
from braidlog.coordinator.group.consumer.group import ConsumerGroup
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.shard import ReplayedRecord, UnknownRecordTypeError
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from braidlog.wire.version_prefix import reader_after_version
from support.classic_groups import GROUP, ClassicDriver, subscription
from support.responders import RecordingResponder

UNKNOWN_MEMBER_ID = 25
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69


@pytest.fixture
def driver() -> ClassicDriver:
    return ClassicDriver()


def beat(driver: ClassicDriver, member_id: str, epoch: int, group: str = GROUP) -> RecordingResponder:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if epoch == 0 else -1,
        subscribed_topic_names=["t"] if epoch == 0 else None,
        topic_partitions=[] if epoch == 0 else None,
    )
    caller = Caller(0, "app", "/10.0.0.1")
    return driver.submit(
        lambda shard, responder, now: shard.consumer_heartbeat(request, caller, responder, now), "beat"
    )


@pytest.mark.parametrize("key", [b"", b"\0", b"\xff\xff"])
def test_a_key_without_a_sensible_version_is_malformed(driver: ClassicDriver, key: bytes) -> None:
    with pytest.raises(MalformedError):
        driver.shard.replay(ReplayedRecord(0, 0, key, b"\0\0"))


def test_records_of_a_later_time_are_left_alone(driver: ClassicDriver) -> None:
    before = driver.shard.durable_state()
    with pytest.raises(UnknownRecordTypeError, match="kind 99"):  # the loader skips it, and says so
        driver.shard.replay(ReplayedRecord(0, 0, b"\0\x63whatever", b"\0\0more"))
    assert driver.shard.durable_state() == before


def test_both_kinds_of_group_are_listed_described_and_deleted(driver: ClassicDriver) -> None:
    driver.stable()
    joined = beat(driver, "m", 0, "new")
    assert joined.error_code == 0
    kinds = {group.group_id: (group.group_type, group.protocol_type) for group in driver.listed()}
    assert kinds == {GROUP: ("classic", "consumer"), "new": ("consumer", "consumer")}
    assert [group.group_id for group in driver.listed(types=("consumer",))] == ["new"]
    assert driver.describe("new").error_code == GROUP_ID_NOT_FOUND
    assert driver.delete("new").error_code == NON_EMPTY_GROUP
    beat(driver, "m", -1, "new")
    assert driver.delete("new").error_code == 0
    assert list(driver.shard.groups) == [GROUP]
    assert driver.rebuilt().durable_state() == driver.shard.durable_state()


def test_an_empty_group_of_the_newer_protocol_begins_anew_as_a_classic_one(driver: ClassicDriver) -> None:
    beat(driver, "m", 0)
    assert isinstance(driver.shard.groups[GROUP], ConsumerGroup)
    beat(driver, "m", -1)
    driver.commit(5)
    (member,) = driver.stable()
    assert driver.group().members.keys() == {member}
    assert driver.committed() == 5
    assert driver.rebuilt().durable_state() == driver.shard.durable_state()
    driver.crash()
    assert driver.group().state == "Stable"
    assert driver.committed() == 5


def test_a_refused_join_leaves_an_empty_group_of_the_newer_protocol_as_it_was(driver: ClassicDriver) -> None:
    beat(driver, "m", 0)
    beat(driver, "m", -1)
    assert driver.join("stranger").error is not None
    assert isinstance(driver.shard.groups[GROUP], ConsumerGroup)


def test_a_live_classic_group_goes_over_and_back(driver: ClassicDriver) -> None:
    driver.settings = GroupSettings(upgrade_allowed=True, downgrade_allowed=True)
    assignment = b"\0\0\0\0\0\1\0\1t\0\0\0\4\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0\3\xff\xff\xff\xff"
    member, _ = driver.enter()
    driver.advance(3.0)
    driver.sync(member, 1, {member: assignment})
    assert beat(driver, "new", 0).error_code == 0
    assert driver.shard.groups[GROUP].kind == "consumer"
    assert driver.rebuilt().durable_state() == driver.shard.durable_state()
    assert driver.heartbeat(member, 1).error_code == 27
    beat(driver, "new", -1)
    assert driver.shard.groups[GROUP].kind == "classic"
    assert driver.rebuilt().durable_state() == driver.shard.durable_state()
    assert driver.group().state == "PreparingRebalance"
    again = driver.join(member)
    assert again.error_code == 0
    driver.advance(60.0)
    assert driver.group().state == "Empty"


def test_an_empty_group_without_offsets_goes_when_offsets_are_checked(driver: ClassicDriver) -> None:
    (member,) = driver.stable()
    driver.commit(5, member, 1)
    driver.leave(member)
    driver.advance(601.0)
    assert driver.committed() == 5
    driver.advance(10_080 * 60 + 601.0)
    assert driver.committed() == -1
    assert driver.shard.groups == {}
    driver.crash()
    assert driver.shard.groups == {}


def test_deadlines_belong_to_the_part_that_set_them(driver: ClassicDriver) -> None:
    (member,) = driver.stable()
    beat(driver, "m", 0, "new")
    driver.advance(46.0)
    assert driver.shard.groups[GROUP].is_empty()
    assert driver.shard.groups["new"].is_empty()
    assert member


# Several groups whose time has come


def test_each_group_that_is_missed_is_a_batch_of_its_own(driver: ClassicDriver) -> None:
    for name in ("a", "b", "c"):
        assert beat(driver, "m", 0, name).error_code == 0
        driver.join(group=name + "-classic", version=3)
    driver.seconds += 0.5  # late, but not as late as if the broker had stood still
    batches = []
    while (due := driver.shard.next_deadline()) is not None and due <= driver.seconds + 45.0:
        driver.seconds = max(driver.seconds, due)
        effects = driver.shard.expire(driver.now)
        batches.append({reader_after_version(record.key).string(False) for record in effects.records})
        driver.apply(effects)
    assert all(len(groups) <= 1 for groups in batches)
    assert set().union(*batches) >= {"a", "b", "c"}


def test_a_group_that_trips_over_a_bug_keeps_no_other_from_its_deadlines(driver: ClassicDriver) -> None:
    names = [f"g{number}" for number in range(4)]
    for name in names:
        assert beat(driver, "m", 0, name).error_code == 0
    spoilt = driver.shard.groups["g1"]
    assert isinstance(spoilt, ConsumerGroup)
    spoilt.snapshot = None  # type: ignore[assignment]
    spoilt.names = None  # type: ignore[assignment]
    driver.seconds += 45.0
    bugs = 0
    while (due := driver.shard.next_deadline()) is not None and due <= driver.seconds:
        try:
            driver.apply(driver.shard.expire(driver.now))
        except TypeError:
            bugs += 1
    assert bugs == 1
    assert [name for name in names if not driver.shard.groups[name].is_empty()] == ["g1"]


def test_describe_shows_the_protocol_only_when_stable_and_always_the_last_assignment(driver: ClassicDriver) -> None:
    assert driver.describe().error_code == GROUP_ID_NOT_FOUND
    (member,) = driver.stable()
    reported = driver.describe().response
    assert (reported.group_state, reported.protocol_type, reported.protocol_data) == ("Stable", "consumer", "range")
    shown = reported.members[0]
    assert (shown.member_id, shown.client_id, shown.client_host) == (member, "app", "/10.0.0.1")
    assert (shown.member_metadata, shown.member_assignment) == (subscription("t"), member.encode())
    driver.join()
    driver.join(member)
    reported = driver.describe().response
    assert (reported.group_state, reported.protocol_data) == ("PreparingRebalance", "")
    assert (reported.members[0].member_metadata, reported.members[0].member_assignment) == (b"", member.encode())


def test_list_filters_by_state_and_type_whatever_the_case(driver: ClassicDriver) -> None:
    driver.stable()
    driver.commit(5, group="simple")
    everything = [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in driver.listed()]
    assert everything == [(GROUP, "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic")]
    assert [group.group_id for group in driver.listed(states=("EMPTY",))] == ["simple"]
    assert [group.group_id for group in driver.listed(states=("stable", "empty"))] == [GROUP, "simple"]
    assert driver.listed(states=("nowhere",)) == []
    assert driver.listed(types=("consumer",)) == []
    assert len(driver.listed(types=("Classic",))) == 2


def test_only_a_group_without_members_is_deleted_with_its_offsets(driver: ClassicDriver) -> None:
    assert driver.delete().error_code == GROUP_ID_NOT_FOUND
    (member,) = driver.stable()
    driver.commit(7, member, 1)
    assert driver.delete().error_code == NON_EMPTY_GROUP
    driver.leave(member)
    assert driver.committed() == 7
    assert driver.delete().error_code == 0
    assert driver.shard.groups == {}
    assert driver.committed() == -1
    assert driver.last_value() is None
    driver.crash()
    assert driver.shard.groups == {}


def test_a_deleted_group_forgets_who_was_to_come_back(driver: ClassicDriver) -> None:
    pending = driver.join().response.member_id
    driver.delete()
    assert driver.join(pending).error_code == UNKNOWN_MEMBER_ID
    driver.advance(60.0)
