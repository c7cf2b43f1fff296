from __future__ import annotations

import pickle

from braidlog.client.consumer.offsets.offset_and_metadata import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
)


def test_only_the_offset_has_to_be_given() -> None:
    assert OffsetAndMetadata(5) == (5, "", -1)
    assert OffsetAndTimestamp(5, 1000).leader_epoch == -1


def test_who_is_in_no_generation_says_so() -> None:
    metadata = ConsumerGroupMetadata("g")
    assert (metadata.generation_id, metadata.member_id, metadata.group_instance_id) == (-1, "", None)


def test_they_travel_between_processes() -> None:
    for value in (OffsetAndMetadata(5, "m", 3), ConsumerGroupMetadata("g", 2, "m", "i")):
        assert pickle.loads(pickle.dumps(value)) == value
