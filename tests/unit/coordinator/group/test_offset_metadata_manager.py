"""Commit, fetch and delete of offsets, outside of transactions and inside."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.coordinator.group.settings import GroupSettings
from braidlog.core.protocol_errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidGroupIdError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    ProtocolError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnstableOffsetCommitError,
)
from braidlog.wire.generated.group_records import OffsetCommitValue
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version
from support.offsets_shard import OffsetsDriver
from support.responders import Marker, RecordingResponder


def partition_of(responder: RecordingResponder) -> Any:
    """The only partition of an answer."""
    assert responder.error is None
    response = responder.response
    topics = response.groups[0].topics if hasattr(response, "groups") else response.topics
    return topics[0].partitions[0]


def last_value(driver: OffsetsDriver) -> tuple[int, OffsetCommitValue]:
    record = driver.log[-1]
    assert not isinstance(record, Marker)
    assert record.value is not None
    version = read_version_prefix(record.value)
    return version, OffsetCommitValue.decode(reader_after_version(record.value), version)


# Commit


def test_a_commit_is_what_a_fetch_gives() -> None:
    driver = OffsetsDriver("t")
    driver.commit("g", "t", 1, 42, metadata="where", leader_epoch=7)
    answer = partition_of(driver.fetch("g", {"t": [1]}))
    assert (answer.committed_offset, answer.metadata, answer.committed_leader_epoch) == (42, "where", 7)
    assert answer.error_code == 0


def test_null_metadata_is_told_as_empty() -> None:
    driver = OffsetsDriver("t")
    driver.commit("g", "t", 0, 1, metadata=None)
    assert partition_of(driver.fetch("g", {"t": [0]})).metadata == ""


@pytest.mark.parametrize(
    ("metadata", "fits"),
    [("x" * 10, True), ("x" * 11, False), ("é" * 10, True), ("é" * 11, False), ("😀" * 5, True), ("😀" * 6, False)],
)
def test_metadata_is_limited_in_units_of_utf_16(metadata: str, fits: bool) -> None:
    driver = OffsetsDriver("t", settings=GroupSettings(offset_metadata_max_bytes=10))
    for responder in (
        driver.commit("g", "t", 0, 1, metadata=metadata),
        driver.commit_txn(5, "g", {("t", 1): 1}, metadata=metadata),
    ):
        assert partition_of(responder).error_code == (0 if fits else OffsetMetadataTooLargeError.code)
    assert len(driver.log) == (2 if fits else 0)


def test_a_commit_is_written_in_the_third_layout() -> None:
    driver = OffsetsDriver("t")
    driver.commit("g", "t", 0, 5, leader_epoch=2)
    version, value = last_value(driver)
    assert version == 3
    assert value.commit_timestamp == driver.now.wall_ms
    assert value.leader_epoch == 2


def test_a_retention_beyond_all_time_lasts_to_its_end() -> None:
    driver = OffsetsDriver("t")
    assert driver.commit("g", "t", 0, 5, version=3, retention_ms=2**63 - 1).error is None
    assert driver.offsets_of("g") == {("t", 0): 5}
    driver.crash()
    assert driver.offsets_of("g") == {("t", 0): 5}


def test_a_retention_of_its_own_is_written_in_the_first_layout() -> None:
    driver = OffsetsDriver("t")
    driver.commit("g", "t", 0, 5, version=3, retention_ms=1000)
    version, value = last_value(driver)
    assert version == 1
    assert value.expire_timestamp == driver.now.wall_ms + 1000


def test_the_client_may_say_when_it_committed() -> None:
    driver = OffsetsDriver("t")
    driver.commit("g", "t", 0, 5, version=1, timestamp_ms=123)
    assert last_value(driver)[1].commit_timestamp == 123


def test_a_simple_commit_makes_a_group_when_it_is_replayed() -> None:
    driver = OffsetsDriver("t")
    assert not driver.shard.groups
    driver.commit("g", "t", 0, 5)
    assert list(driver.shard.groups) == ["g"]


def test_the_empty_group_id_may_commit_and_fetch() -> None:
    driver = OffsetsDriver("t")
    assert partition_of(driver.commit("", "t", 0, 5)).error_code == 0
    assert driver.offsets_of("") == {("t", 0): 5}


@pytest.mark.parametrize(("version", "error"), [(8, IllegalGenerationError), (9, GroupIdNotFoundError)])
def test_members_of_an_unknown_group(version: int, error: type[ProtocolError]) -> None:
    driver = OffsetsDriver("t")
    assert driver.commit("g", "t", 0, 5, generation=0, member_id="m", version=version).error_code == error.code
    assert not driver.log


def test_the_group_is_asked() -> None:
    driver = OffsetsDriver("t")
    group = driver.shard.group("g")
    driver.commit("g", "t", 0, 5, generation=3, member_id="m", version=8)
    assert group.asked == [("commit", "m", None, 3, False, 8)]
    assert driver.shard.heard == [("g", "m")]
    group.refuses = UnknownMemberIdError()
    assert driver.commit("g", "t", 0, 6, generation=3, member_id="m").error_code == UnknownMemberIdError.code
    group.refuses = None
    assert driver.offsets_of("g") == {("t", 0): 5}
    assert driver.shard.heard == [("g", "m")]


# Fetch


def test_an_unknown_group_has_no_offsets() -> None:
    driver = OffsetsDriver("t")
    answer = partition_of(driver.fetch("g", {"t": [4]}))
    assert (answer.committed_offset, answer.metadata, answer.committed_leader_epoch) == (-1, "", -1)
    assert answer.error_code == 0
    assert driver.offsets_of("g") == {}


def test_a_group_that_died_has_no_offsets() -> None:
    driver = OffsetsDriver("t")
    driver.commit("g", "t", 0, 5)
    driver.shard.group("g").refuses = GroupIdNotFoundError()
    assert partition_of(driver.fetch("g", {"t": [0]})).committed_offset == -1
    assert driver.offsets_of("g") == {}


@pytest.mark.parametrize("error", [StaleMemberEpochError(), UnknownMemberIdError()])
def test_a_member_that_the_group_does_not_know(error: ProtocolError) -> None:
    driver = OffsetsDriver("t")
    group = driver.shard.group("g")
    group.refuses = error
    assert driver.fetch("g", {"t": [0]}, member_id="m", member_epoch=4).error is error
    assert group.asked == [("fetch", "m", 4)]


def test_partitions_without_an_offset_are_told_among_the_others() -> None:
    driver = OffsetsDriver("t", "u")
    driver.commit("g", "t", 1, 5)
    answer = driver.fetch("g", {"t": [0, 1], "u": [0]}).response.groups[0]
    reported = {(t.name, p.partition_index): p.committed_offset for t in answer.topics for p in t.partitions}
    assert reported == {("t", 0): -1, ("t", 1): 5, ("u", 0): -1}


# Transactions


def test_a_transactions_offsets_count_when_it_commits() -> None:
    driver = OffsetsDriver("t", "u")
    driver.commit_txn(5, "g", {("t", 0): 10, ("u", 1): 20})
    assert driver.offsets_of("g") == {}
    driver.end_transaction(5, 0, commits=True)
    assert driver.offsets_of("g") == {("t", 0): 10, ("u", 1): 20}


def test_an_aborted_transactions_offsets_never_count() -> None:
    driver = OffsetsDriver("t")
    driver.commit("g", "t", 0, 3)
    driver.commit_txn(5, "g", {("t", 0): 10})
    driver.end_transaction(5, 0, commits=False)
    assert driver.offsets_of("g") == {("t", 0): 3}
    driver.end_transaction(5, 0, commits=True)
    assert driver.offsets_of("g") == {("t", 0): 3}


def test_pending_offsets_are_unstable() -> None:
    driver = OffsetsDriver("t")
    driver.commit("g", "t", 0, 3)
    driver.commit("g", "t", 1, 4)
    driver.commit_txn(5, "g", {("t", 0): 10})
    unstable = partition_of(driver.fetch("g", {"t": [0]}, stable=True))
    assert (unstable.error_code, unstable.committed_offset) == (UnstableOffsetCommitError.code, -1)
    assert partition_of(driver.fetch("g", {"t": [1]}, stable=True)).committed_offset == 4
    assert partition_of(driver.fetch("g", {"t": [0]})).committed_offset == 3
    everything = driver.fetch("g", stable=True).response.groups[0].topics[0].partitions
    assert [p.error_code for p in everything] == [UnstableOffsetCommitError.code, 0]
    driver.end_transaction(5, 0, commits=True)
    assert partition_of(driver.fetch("g", {"t": [0]}, stable=True)).committed_offset == 10


def test_a_partition_stays_unstable_until_the_last_of_several_transactions() -> None:
    driver = OffsetsDriver("t")
    driver.commit_txn(5, "g", {("t", 0): 10})
    driver.commit_txn(6, "g", {("t", 0): 11})
    driver.end_transaction(6, 0, commits=True)
    assert partition_of(driver.fetch("g", {"t": [0]}, stable=True)).error_code == UnstableOffsetCommitError.code
    driver.end_transaction(5, 0, commits=True)
    assert partition_of(driver.fetch("g", {"t": [0]}, stable=True)).committed_offset == 11


def test_the_commit_that_was_written_last_wins() -> None:
    driver = OffsetsDriver("t")
    driver.commit_txn(5, "g", {("t", 0): 10})
    driver.commit("g", "t", 0, 4)
    driver.end_transaction(5, 0, commits=True)
    assert driver.offsets_of("g") == {("t", 0): 4}


def test_a_deleted_offset_is_not_brought_back_by_a_transaction() -> None:
    driver = OffsetsDriver("t")
    driver.commit_txn(5, "g", {("t", 0): 10, ("t", 1): 11})
    driver.delete("g", {"t": [0]})
    driver.end_transaction(5, 0, commits=True)
    assert driver.offsets_of("g") == {("t", 1): 11}


def test_a_transactions_records_carry_its_producer() -> None:
    driver = OffsetsDriver("t")
    driver.commit_txn(5, "g", {("t", 0): 10}, producer_epoch=3)
    record = driver.log[-1]
    assert not isinstance(record, Marker)
    assert (record.producer_id, record.producer_epoch) == (5, 3)


def test_group_metadata_fences_a_producer() -> None:
    driver = OffsetsDriver("t")
    assert driver.commit_txn(5, "g", {("t", 0): 1}, generation=2).error_code == IllegalGenerationError.code
    assert driver.commit_txn(5, "", {("t", 0): 1}).error_code == InvalidGroupIdError.code
    group = driver.shard.group("g")
    group.refuses = StaleMemberEpochError()
    assert driver.commit_txn(5, "g", {("t", 0): 1}, generation=2).error_code == IllegalGenerationError.code
    assert group.asked == [("commit", "", None, 2, True, 3)]
    assert not driver.log


# Delete


def test_deleted_offsets_are_gone() -> None:
    driver = OffsetsDriver("t")
    driver.commit("g", "t", 0, 5)
    driver.commit("g", "t", 1, 6)
    response = driver.delete("g", {"t": [0, 2, 0]}).response
    assert response.error_code == 0
    assert [(p.partition_index, p.error_code) for p in response.topics[0].partitions] == [(0, 0), (2, 0)]
    assert driver.offsets_of("g") == {("t", 1): 6}
    assert len(driver.log) == 3


def test_offsets_that_a_member_uses_stay() -> None:
    driver = OffsetsDriver("t")
    driver.commit("g", "t", 0, 5)
    driver.shard.group("g").subscribed = {"t"}
    assert partition_of(driver.delete("g", {"t": [0]})).error_code == GroupSubscribedToTopicError.code
    assert driver.offsets_of("g") == {("t", 0): 5}


def test_who_may_not_delete() -> None:
    driver = OffsetsDriver("t")
    assert driver.delete("g", {"t": [0]}).error_code == GroupIdNotFoundError.code
    assert driver.delete("", {"t": [0]}).error_code == InvalidGroupIdError.code
    driver.shard.group("g").refuses = NonEmptyGroupError()
    assert driver.delete("g", {"t": [0]}).error_code == NonEmptyGroupError.code


def test_a_deleted_group_takes_its_offsets_along() -> None:
    driver = OffsetsDriver("t", "u")
    driver.commit("g", "t", 0, 5)
    driver.commit("h", "t", 0, 6)
    driver.commit_txn(5, "g", {("t", 0): 7, ("u", 1): 8})
    driver.delete_group("g")
    driver.end_transaction(5, 0, commits=True)
    assert list(driver.shard.groups) == ["h"]
    assert driver.offsets_of("g") == {}
    assert driver.offsets_of("h") == {("t", 0): 6}
