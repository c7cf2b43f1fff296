from __future__ import annotations

import pytest

from support.classic_groups import GROUP, ClassicDriver, subscription

UNKNOWN_MEMBER_ID = 25
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69


@pytest.fixture
def driver() -> ClassicDriver:
    return ClassicDriver()


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
