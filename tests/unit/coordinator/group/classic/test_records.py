from __future__ import annotations

import pytest

from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.core.protocol_errors import NotCoordinatorError
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from braidlog.wire.version_prefix import version_prefixed_bytes
from support.classic_groups import ClassicDriver


@pytest.fixture
def driver() -> ClassicDriver:
    return ClassicDriver()


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
    (member,) = driver.stable()
    _, waiting = driver.enter()
    driver.join(member)
    assert driver.group().generation == 2
    driver.crash()
    assert (driver.group().generation, driver.group().state) == (1, "Stable")
    assert list(driver.group().members) == [member]
    assert driver.join(member).response.generation_id == 2
    assert waiting.answered


def test_an_empty_group_keeps_its_generation(driver: ClassicDriver) -> None:
    (member,) = driver.stable()
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
    key = version_prefixed_bytes(GroupMetadataKey(group="old"), 2)
    driver.shard.replay(ReplayedRecord(0, 0, key, version_prefixed_bytes(value, version)))
    group = driver.group("old")
    assert (group.state, group.generation, group.leader) == ("Stable", 4, "m")
    assert group.members["m"].assignment == b"a"
    assert group.members["m"].rebalance_timeout_ms == 9


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\x09", b"\xff\xff", b"\0\3\0\5con"])
def test_a_record_that_makes_no_sense_is_told(driver: ClassicDriver, value: bytes) -> None:
    with pytest.raises(MalformedError):
        driver.shard.replay(ReplayedRecord(0, 0, version_prefixed_bytes(GroupMetadataKey(group="bad"), 2), value))


def test_whoever_waits_is_told_when_the_shard_goes(driver: ClassicDriver) -> None:
    (member,) = driver.stable()
    _, joining = driver.enter()
    _, other = driver.enter(group="another")
    driver.apply(driver.shard.on_unloaded(NotCoordinatorError()))
    assert (joining.error_code, other.error_code) == (16, 16)
    assert driver.group().num_awaiting_join == 0
    assert member in driver.group().members
