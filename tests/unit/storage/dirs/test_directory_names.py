from __future__ import annotations

import pytest

from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.directory_names import DirectoryKind, marked_name, parse_directory_name


@pytest.mark.parametrize(
    ("name", "partition", "kind"),
    [
        ("orders-3", TopicPartition("orders", 3), DirectoryKind.CURRENT),
        ("a-b-10", TopicPartition("a-b", 10), DirectoryKind.CURRENT),
        ("x.y-0", TopicPartition("x.y", 0), DirectoryKind.CURRENT),
        ("orders-3.0af1c0ffee0af1c0ffee0af1c0ffee00-delete", TopicPartition("orders", 3), DirectoryKind.DELETE),
        ("a-b-1.0123456789abcdef0123456789abcdef-future", TopicPartition("a-b", 1), DirectoryKind.FUTURE),
        ("t-0.0123456789abcdef0123456789abcdef-stray", TopicPartition("t", 0), DirectoryKind.STRAY),
    ],
)
def test_names_tell_partition_and_role(name: str, partition: TopicPartition, kind: DirectoryKind) -> None:
    assert parse_directory_name(name) == (partition, kind)


@pytest.mark.parametrize("name", ["lost+found", "snapshots", "__cluster_metadata-0", "orders", "-3", "orders-x", ""])
def test_other_names_are_nobodys(name: str) -> None:
    assert parse_directory_name(name) is None


@pytest.mark.parametrize("kind", [DirectoryKind.DELETE, DirectoryKind.FUTURE, DirectoryKind.STRAY])
def test_marked_names_parse_back_and_are_fresh(kind: DirectoryKind) -> None:
    partition = TopicPartition("orders.eu", 12)
    name = marked_name(partition, kind)
    assert parse_directory_name(name) == (partition, kind)
    assert name != marked_name(partition, kind)


def test_a_long_topic_is_cut_to_a_name_that_file_systems_take() -> None:
    name = marked_name(TopicPartition("t" * 249, 123), DirectoryKind.DELETE)
    assert len(name) == 255
    parsed = parse_directory_name(name)
    assert parsed is not None
    assert parsed.kind is DirectoryKind.DELETE
