from __future__ import annotations

import pytest

from braidlog.coordinator.effects import Effects
from braidlog.coordinator.group.classic.states import COMPLETING, EMPTY, MOVES, STABLE, IllegalMoveError
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.core.protocol_errors import CoordinatorNotAvailableError, NotCoordinatorError
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from braidlog.wire.layouts import layout_reader, layout_version, versioned
from support.classic_groups import GROUP, REBALANCE_MS, SESSION_MS, ClassicDriver, subscription

COORDINATOR_NOT_AVAILABLE = 15
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
FENCED_INSTANCE_ID = 82


@pytest.fixture
def driver() -> ClassicDriver:
    return ClassicDriver()


def last_value(driver: ClassicDriver) -> GroupMetadataValue | None:
    """The newest record of the group itself."""
    for entry in reversed(driver.log):
        assert isinstance(entry, ReplayedRecord)
        if layout_version(entry.key) == 2:
            if entry.value is None:
                return None
            assert layout_version(entry.value) == 3
            return GroupMetadataValue.decode(layout_reader(entry.value), 3)
    raise AssertionError("no record of a group was written")


# Sync


def test_followers_get_their_part_when_the_leader_brings_it(driver: ClassicDriver) -> None:
    members = [driver.enter()[0] for _ in range(3)]
    driver.advance(6.0)
    leader, second, third = members
    waiting = driver.sync(second, 1)
    assert not waiting.answered
    written = len(driver.log)
    driver.sync(leader, 1, {leader: b"1", second: b"2"})
    assert len(driver.log) == written + 1
    assert driver.tickets[-1].response.assignment == b"1"
    assert waiting.response.assignment == b"2"
    assert (waiting.response.protocol_type, waiting.response.protocol_name) == ("consumer", "range")
    late = driver.sync(third, 1)
    assert late.response.assignment == b""
    value = last_value(driver)
    assert value is not None
    assert (value.generation, value.leader, value.protocol_type, value.protocol) == (1, leader, "consumer", "range")
    assert [(member.member_id, member.assignment) for member in value.members] == [
        (leader, b"1"),
        (second, b"2"),
        (third, b""),
    ]


def test_a_sync_must_name_member_generation_and_protocol_right(driver: ClassicDriver) -> None:
    assert driver.sync("m", 1).error_code == UNKNOWN_MEMBER_ID
    member, = driver.stable()
    assert driver.sync("m", 1).error_code == UNKNOWN_MEMBER_ID
    assert driver.sync(member, 2).error_code == ILLEGAL_GENERATION
    assert driver.sync(member, 1, protocol_type="connect").error_code == INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync(member, 1, protocol_name="sticky").error_code == INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync(member, 1, protocol_type="consumer", protocol_name="range").error_code == 0


def test_syncs_that_wait_are_sent_back_when_another_member_comes(driver: ClassicDriver) -> None:
    leader, follower = (driver.enter()[0] for _ in range(2))
    driver.advance(6.0)
    waiting = driver.sync(follower, 1)
    driver.enter()
    assert waiting.error_code == REBALANCE_IN_PROGRESS
    assert driver.sync(leader, 1, {}).error_code == REBALANCE_IN_PROGRESS
    assert driver.group().state == "PreparingRebalance"


def test_a_newer_sync_of_the_same_member_takes_the_place_of_the_older(driver: ClassicDriver) -> None:
    leader, follower = (driver.enter()[0] for _ in range(2))
    driver.advance(6.0)
    first, second = driver.sync(follower, 1), driver.sync(follower, 1)
    assert first.error_code == REBALANCE_IN_PROGRESS
    driver.sync(leader, 1, {follower: b"x"})
    assert second.response.assignment == b"x"


def test_members_that_do_not_sync_within_the_rebalance_timeout_are_out(driver: ClassicDriver) -> None:
    leader, follower = (driver.enter()[0] for _ in range(2))
    driver.advance(6.0)
    waiting = driver.sync(follower, 1)
    for _ in range(int(REBALANCE_MS / 5_000)):
        driver.heartbeat(leader, 1)
        driver.advance(5.0)
    assert waiting.error_code == REBALANCE_IN_PROGRESS
    assert list(driver.group().members) == [follower]
    assert driver.group().leader == follower
    assert driver.join(follower).response.generation_id == 2


def test_a_stable_group_also_loses_a_follower_that_never_syncs(driver: ClassicDriver) -> None:
    leader, follower = (driver.enter()[0] for _ in range(2))
    driver.advance(6.0)
    driver.sync(leader, 1, {})
    for _ in range(int(REBALANCE_MS / 5_000)):
        driver.heartbeat(leader, 1)
        driver.heartbeat(follower, 1)
        driver.advance(5.0)
    assert list(driver.group().members) == [leader]
    assert driver.heartbeat(leader, 1).error_code == REBALANCE_IN_PROGRESS


# Heartbeats and sessions


def test_a_heartbeat_must_name_member_and_generation_right(driver: ClassicDriver) -> None:
    assert driver.heartbeat("m", 1).error_code == UNKNOWN_MEMBER_ID
    member, = driver.stable()
    assert driver.heartbeat(member, 1).error_code == 0
    assert driver.heartbeat(member, 0).error_code == ILLEGAL_GENERATION
    assert driver.heartbeat("m", 1).error_code == UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_its_assignment_may_send_heartbeats(driver: ClassicDriver) -> None:
    member, _ = driver.enter()
    driver.advance(3.0)
    assert driver.group().state == "CompletingRebalance"
    assert driver.heartbeat(member, 1).error_code == 0


def test_a_silent_member_is_out_after_its_session_and_its_group_empty(driver: ClassicDriver) -> None:
    member, = driver.stable()
    driver.advance(SESSION_MS / 1000 - 1)
    assert driver.heartbeat(member, 1).error_code == 0
    driver.advance(SESSION_MS / 1000 - 1)
    assert driver.group().state == "Stable"
    driver.advance(1.0)
    assert driver.group().state == "Empty"
    assert driver.group().generation == 2
    value = last_value(driver)
    assert value is not None
    assert (value.generation, value.members, value.protocol, value.leader) == (2, [], None, None)
    assert value.protocol_type == "consumer"
    assert value.current_state_timestamp == driver.now.wall_ms
    assert driver.heartbeat(member, 2).error_code == UNKNOWN_MEMBER_ID


def test_a_silent_member_costs_the_others_a_rebalance(driver: ClassicDriver) -> None:
    first, second = driver.stable(2)
    driver.advance(9.0)
    driver.heartbeat(second, 1)
    driver.advance(1.0)
    assert driver.heartbeat(second, 1).error_code == REBALANCE_IN_PROGRESS
    answer = driver.join(second).response
    assert (answer.generation_id, answer.leader) == (2, second)
    assert first not in driver.group().members


def test_sessions_do_not_end_while_a_join_waits(driver: ClassicDriver) -> None:
    first, second = driver.stable(2)
    waiting = driver.join(first)
    for _ in range(5):
        driver.advance(8.0)
        assert driver.heartbeat(second, 1).error_code == REBALANCE_IN_PROGRESS
    assert driver.join(second).error_code == 0
    assert waiting.error_code == 0


def test_a_late_timer_does_not_cost_a_member_that_was_just_answered_its_session(driver: ClassicDriver) -> None:
    first, second = driver.stable(2, rebalance_ms=4_000)
    driver.advance(5.5)
    driver.heartbeat(second, 1)
    waiting = driver.join(first, rebalance_ms=4_000)
    # The first one's session would have ended just after the others' time to join.
    driver.stall(6.0)
    assert waiting.error_code == 0
    assert driver.heartbeat(first, 2).error_code == 0


def test_commits_keep_a_session_alive(driver: ClassicDriver) -> None:
    member, = driver.stable()
    for _ in range(5):
        driver.advance(8.0)
        assert driver.commit(1, member, 1).response.topics[0].partitions[0].error_code == 0
    assert driver.heartbeat(member, 1).error_code == 0


# Leave


def test_a_member_leaves_at_once(driver: ClassicDriver) -> None:
    first, second = driver.stable(2)
    left = driver.leave(second, "stranger").response
    assert [(member.member_id, member.error_code) for member in left.members] == [
        (second, 0),
        ("stranger", UNKNOWN_MEMBER_ID),
    ]
    assert driver.heartbeat(first, 1).error_code == REBALANCE_IN_PROGRESS
    driver.leave(first)
    assert driver.group().state == "Empty"
    assert driver.leave(first).response.members[0].error_code == UNKNOWN_MEMBER_ID


def test_old_versions_leave_one_at_a_time(driver: ClassicDriver) -> None:
    assert driver.leave("m", version=2).response.error_code == UNKNOWN_MEMBER_ID
    member, = driver.stable()
    assert driver.leave("m", version=1).response.error_code == UNKNOWN_MEMBER_ID
    assert driver.leave(member, version=0).response.error_code == 0
    assert driver.group().state == "Empty"


def test_static_members_leave_by_instance_and_a_replaced_one_is_fenced(driver: ClassicDriver) -> None:
    members = driver.stable_static("a", "b")
    new = driver.join(instance="b").response.member_id
    left = driver.leave((members["b"], "b"), ("", "a"), ("", "c"), (new, "a")).response
    assert [member.error_code for member in left.members] == [
        FENCED_INSTANCE_ID,
        0,
        UNKNOWN_MEMBER_ID,
        UNKNOWN_MEMBER_ID,
    ]
    assert [member.group_instance_id for member in left.members] == ["b", "a", "c", "a"]


def test_a_pending_member_may_leave_which_lets_the_others_go_on(driver: ClassicDriver) -> None:
    first, = driver.stable()
    pending = driver.join().response.member_id
    waiting = driver.join(first)
    assert not waiting.answered
    assert driver.leave(pending).response.members[0].error_code == 0
    assert waiting.error_code == 0


def test_a_pending_member_that_leaves_a_stable_group_disturbs_nobody(driver: ClassicDriver) -> None:
    member, = driver.stable()
    assert driver.leave(driver.join().response.member_id).response.members[0].error_code == 0
    assert driver.heartbeat(member, 1).error_code == 0


def test_who_leaves_while_it_waits_is_answered(driver: ClassicDriver) -> None:
    leader, = driver.stable()
    member, waiting = driver.enter()
    driver.leave(member)
    assert waiting.error_code == UNKNOWN_MEMBER_ID
    driver.join(leader)
    assert driver.group().state == "CompletingRebalance"


def test_all_may_leave_during_the_initial_delay(driver: ClassicDriver) -> None:
    member, _ = driver.enter()
    driver.leave(member)
    driver.advance(3.0)
    assert driver.group().state == "Empty"
    driver.stable()


# Describe, list, delete


def test_describe_shows_the_protocol_only_when_stable_and_always_the_last_assignment(driver: ClassicDriver) -> None:
    assert driver.describe().error_code == GROUP_ID_NOT_FOUND
    member, = driver.stable()
    told = driver.describe().response
    assert (told.group_state, told.protocol_type, told.protocol_data) == ("Stable", "consumer", "range")
    shown = told.members[0]
    assert (shown.member_id, shown.client_id, shown.client_host) == (member, "app", "/10.0.0.1")
    assert (shown.member_metadata, shown.member_assignment) == (subscription("t"), member.encode())
    driver.join()
    driver.join(member)
    told = driver.describe().response
    assert (told.group_state, told.protocol_data) == ("PreparingRebalance", "")
    assert (told.members[0].member_metadata, told.members[0].member_assignment) == (b"", member.encode())


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
    member, = driver.stable()
    driver.commit(7, member, 1)
    assert driver.delete().error_code == NON_EMPTY_GROUP
    driver.leave(member)
    assert driver.committed() == 7
    assert driver.delete().error_code == 0
    assert driver.shard.groups == {}
    assert driver.committed() == -1
    assert last_value(driver) is None
    driver.crash()
    assert driver.shard.groups == {}


def test_a_deleted_group_forgets_who_was_to_come_back(driver: ClassicDriver) -> None:
    pending = driver.join().response.member_id
    driver.delete()
    assert driver.join(pending).error_code == UNKNOWN_MEMBER_ID
    driver.advance(60.0)


# Commits


def test_simple_commits_are_taken_while_nobody_is_in(driver: ClassicDriver) -> None:
    assert driver.commit(1).error_code == 0
    assert driver.commit(2, "whoever", -1).error_code == 0
    member, _ = driver.enter()
    assert driver.commit(3).error_code == UNKNOWN_MEMBER_ID
    driver.leave(member)
    driver.advance(3.0)
    assert driver.commit(4).error_code == 0
    assert driver.committed() == 4


def test_a_commit_must_name_member_and_generation_right_and_waits_for_the_assignment(driver: ClassicDriver) -> None:
    member, _ = driver.enter()
    driver.advance(3.0)
    assert driver.commit(1, member, 1).error_code == REBALANCE_IN_PROGRESS
    assert driver.commit(1, "m", 1).error_code == UNKNOWN_MEMBER_ID
    driver.settle(member)
    assert driver.commit(1, member, 1).error_code == 0
    assert driver.commit(1, member, 0).error_code == ILLEGAL_GENERATION
    assert driver.commit(1, "m", 1).error_code == UNKNOWN_MEMBER_ID
    driver.join()
    driver.join(member)
    assert driver.group().state == "PreparingRebalance"
    assert driver.commit(2, member, 1).error_code == 0


def test_transactional_commits_are_fenced_only_if_they_say_who_they_are(driver: ClassicDriver) -> None:
    member, = driver.stable()
    group = driver.group()
    group.validate_offset_commit("", None, -1, True, 3)
    group.validate_offset_commit(member, None, 1, True, 3)
    for member_id, instance, generation, code in (
        ("m", None, 1, UNKNOWN_MEMBER_ID),
        (member, None, 0, ILLEGAL_GENERATION),
        (member, "a", 1, UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(Exception) as refused:
            group.validate_offset_commit(member_id, instance, generation, True, 3)
        assert getattr(refused.value, "code", None) == code


def test_a_dead_group_sends_its_members_to_look_for_the_coordinator(driver: ClassicDriver) -> None:
    member, = driver.stable()
    group = driver.group()
    effects = Effects()
    driver.shard.classic.dissolve(group, CoordinatorNotAvailableError(), driver.now, effects)
    assert driver.heartbeat(member, 1).error_code == COORDINATOR_NOT_AVAILABLE
    assert driver.join(member).error_code == COORDINATOR_NOT_AVAILABLE
    assert driver.commit(1, member, 1).error_code == COORDINATOR_NOT_AVAILABLE
    assert driver.leave(member).error_code == COORDINATOR_NOT_AVAILABLE


# Subscriptions


def test_topics_are_subscribed_as_members_say(driver: ClassicDriver) -> None:
    driver.stable(protocols={"range": subscription("t", "u", version=3)})
    group = driver.group()
    assert [group.is_subscribed_to(topic) for topic in ("t", "u", "v")] == [True, True, False]
    driver.crash()
    group = driver.group()
    assert [group.is_subscribed_to(topic) for topic in ("t", "u", "v")] == [True, True, False]


@pytest.mark.parametrize("foreign", [b"", b"\0", b"\0\0\x7f\xff", b"\xff\xff\0\0\0\0", b"hello world"])
def test_members_that_cannot_be_understood_may_read_anything(driver: ClassicDriver, foreign: bytes) -> None:
    member, = driver.stable(protocols={"range": foreign})
    assert driver.group().is_subscribed_to("v")
    assert driver.group().offsets_age_from(5) is None
    driver.leave(member)
    assert not driver.group().is_subscribed_to("v")


def test_a_group_of_another_kind_has_no_topics(driver: ClassicDriver) -> None:
    driver.stable(protocol_type="connect", protocols={"sessioned": b"\0\1anything"})
    assert not driver.group().is_subscribed_to("t")
    assert driver.group().offsets_age_from(5) is None


def test_offsets_age_from_when_the_last_member_went(driver: ClassicDriver) -> None:
    driver.commit(1, group="simple")
    assert driver.group("simple").offsets_age_from(5) == 5
    member, = driver.stable()
    assert driver.group().offsets_age_from(5) == 5
    driver.advance(1.0)
    driver.leave(member)
    left = driver.now.wall_ms
    driver.advance(100.0)
    assert driver.group().offsets_age_from(5) == left
    driver.crash()
    assert driver.group().offsets_age_from(5) == left


# Cooperative rebalancing is two rebalances in a row


def test_a_member_that_gave_up_a_partition_joins_again_and_another_gets_it(driver: ClassicDriver) -> None:
    how = {"protocols": {"cooperative-sticky": subscription("t", version=1)}}
    first, = driver.stable(**how)
    second, joined = driver.enter(**how)
    again = driver.join(first, **how)
    assert (again.response.generation_id, joined.response.generation_id) == (2, 2)
    waiting = driver.sync(second, 2)
    driver.sync(first, 2, {first: b"one of two", second: b""})
    assert waiting.response.assignment == b""
    revoked = {"protocols": {"cooperative-sticky": subscription("t", version=2)}}
    driver.join(first, **revoked)
    assert driver.heartbeat(second, 2).error_code == REBALANCE_IN_PROGRESS
    third = driver.join(second, **how)
    assert third.response.generation_id == 3
    driver.sync(first, 3, {first: b"one of two", second: b"the other"})
    assert driver.sync(second, 3).response.assignment == b"the other"


# Replay


def test_after_a_crash_members_are_back_with_their_assignment_and_a_whole_session(driver: ClassicDriver) -> None:
    members = driver.stable(2)
    before = driver.shard.durable_state()
    driver.advance(9.0)
    driver.crash()
    assert driver.shard.durable_state() == before
    driver.advance(9.0)
    for member in members:
        assert driver.heartbeat(member, 1).error_code == 0
        assert driver.sync(member, 1).response.assignment == member.encode()
    driver.advance(10.0)
    assert driver.group().state == "Empty"


def test_a_crash_during_a_rebalance_takes_the_group_back_to_the_generation_before(driver: ClassicDriver) -> None:
    member, = driver.stable()
    _, waiting = driver.enter()
    driver.join(member)
    assert driver.group().generation == 2
    driver.crash()
    assert (driver.group().generation, driver.group().state) == (1, "Stable")
    assert list(driver.group().members) == [member]
    assert driver.join(member).response.generation_id == 2
    assert waiting.answered


def test_an_empty_group_keeps_its_generation(driver: ClassicDriver) -> None:
    member, = driver.stable()
    driver.leave(member)
    driver.crash()
    assert (driver.group().generation, driver.group().state) == (2, "Empty")
    _, joined = driver.enter()
    driver.advance(3.0)
    assert joined.response.generation_id == 3


def test_a_group_that_is_too_large_when_it_is_loaded_is_rebalanced(driver: ClassicDriver) -> None:
    members = driver.stable(3)
    driver.settings = GroupSettings(max_size=2)
    driver.crash()
    assert driver.group().state == "PreparingRebalance"
    first, second, third = (driver.join(member) for member in members)
    assert (first.error_code, second.error_code, third.error_code) == (0, 0, 81)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_records_of_every_version_are_understood(driver: ClassicDriver, version: int) -> None:
    member = MemberMetadata(member_id="m", client_id="c", client_host="/h", session_timeout=9, assignment=b"a")
    value = GroupMetadataValue(protocol_type="consumer", generation=4, protocol="range", leader="m", members=[member])
    key = versioned(GroupMetadataKey(group="old"), 2)
    driver.shard.replay(ReplayedRecord(0, 0, key, versioned(value, version)))
    group = driver.group("old")
    assert (group.state, group.generation, group.leader) == ("Stable", 4, "m")
    assert group.members["m"].assignment == b"a"
    assert group.members["m"].rebalance_timeout_ms == 9


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\x09", b"\xff\xff", b"\0\3\0\5con"])
def test_a_record_that_makes_no_sense_is_told(driver: ClassicDriver, value: bytes) -> None:
    with pytest.raises(MalformedError):
        driver.shard.replay(ReplayedRecord(0, 0, versioned(GroupMetadataKey(group="bad"), 2), value))


def test_whoever_waits_is_told_when_the_shard_goes(driver: ClassicDriver) -> None:
    member, = driver.stable()
    _, joining = driver.enter()
    _, other = driver.enter(group="another")
    driver.apply(driver.shard.abandon(NotCoordinatorError()))
    assert (joining.error_code, other.error_code) == (16, 16)
    assert driver.group().joined == 0
    assert member in driver.group().members


# The table


def test_every_state_may_die_and_only_known_moves_are_made(driver: ClassicDriver) -> None:
    assert {state for state, moves in MOVES.items() if "Dead" not in moves} == {"Dead"}
    driver.stable()
    with pytest.raises(IllegalMoveError, match="'orders' cannot go from Stable to CompletingRebalance"):
        driver.group().move(COMPLETING, 0)
    assert STABLE not in MOVES[EMPTY]
