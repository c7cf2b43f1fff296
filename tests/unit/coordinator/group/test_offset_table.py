from __future__ import annotations

from braidlog.coordinator.group.offset_records import OffsetAndMetadata
from braidlog.coordinator.group.offset_table import OffsetTable, PendingOffsets


def at(offset: int, record_offset: int = -1) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, -1, "", 0, -1, record_offset)


def test_the_newest_commit_counts() -> None:
    table = OffsetTable()
    table.put("g", "t", 0, at(1))
    table.put("g", "t", 0, at(2))
    table.put("g", "t", 1, at(3))
    assert table.count == 2
    assert table.get("g", "t", 0) == at(2)
    assert table.of_topic("g", "t") == {0: at(2), 1: at(3)}
    assert table.get("g", "other", 0) is None
    assert table.of_group("other") == {}


def test_no_empty_level_is_left_behind() -> None:
    table = OffsetTable()
    table.put("g", "t", 0, at(1))
    table.put("g", "u", 0, at(1))
    for _ in range(2):
        table.remove("g", "t", 0)
    assert table.count == 1
    assert table.of_group("g") == {"u": {0: at(1)}}
    table.remove("g", "u", 0)
    assert list(table.group_ids()) == []
    assert table.durable_state() == {}


def test_the_state_does_not_depend_on_the_order_of_commits() -> None:
    one, two = OffsetTable(), OffsetTable()
    places = [("g", "t", 1), ("g", "t", 0), ("f", "t", 0)]
    for place in places:
        one.put(*place, at(1))
    for place in reversed(places):
        two.put(*place, at(1))
    assert repr(one.durable_state()) == repr(two.durable_state())


def test_what_a_producer_wrote_is_taken_once_in_its_order() -> None:
    pending = PendingOffsets()
    pending.put(7, "g", "t", 1, at(1))
    pending.put(7, "g", "t", 0, at(2))
    pending.put(8, "g", "t", 0, at(3))
    pending.put(7, "g", "t", 1, at(4))
    assert len(pending) == 3
    assert pending.take(7) == [(("g", "t", 1), at(4)), (("g", "t", 0), at(2))]
    assert pending.take(7) == []
    assert not pending.has("g", "t", 1)
    assert pending.has("g", "t", 0)
    pending.take(8)
    assert not pending.has_group("g")
    assert pending.group_ids() == []


def test_a_deleted_partition_is_no_longer_pending_for_any_producer() -> None:
    pending = PendingOffsets()
    pending.put(7, "g", "t", 0, at(1))
    pending.put(8, "g", "t", 0, at(2))
    pending.put(8, "g", "t", 1, at(3))
    pending.drop("g", "t", 0)
    pending.drop("g", "t", 5)
    assert pending.of_group("g") == [("t", 1)]
    assert pending.take(7) == []
    assert pending.take(8) == [(("g", "t", 1), at(3))]


def test_the_newest_record_of_a_partition() -> None:
    pending = PendingOffsets()
    pending.put(7, "g", "t", 0, at(1, 30))
    pending.put(8, "g", "t", 0, at(1, 20))
    assert pending.newest_record("g", "t", 0) == 30
    assert pending.newest_record("g", "t", 1) == -1
