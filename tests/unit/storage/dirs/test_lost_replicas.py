from __future__ import annotations

import pytest

from braidlog.core.errors import CorruptLogError, NewerFormatError
from braidlog.core.ids import ZERO_ID
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.lost_replicas import LostReplica, decode_lost_replicas, encode_lost_replicas

LOST = [LostReplica(TopicPartition("orders", 3), bytes(range(16))), LostReplica(TopicPartition("old", 0), ZERO_ID)]


def test_a_line_for_each() -> None:
    text = encode_lost_replicas(LOST)
    assert text == "orders 3 AAECAwQFBgcICQoLDA0ODw\nold 0 AAAAAAAAAAAAAAAAAAAAAA\n"
    assert decode_lost_replicas(text, "path") == LOST
    assert decode_lost_replicas("", "path") == []


@pytest.mark.parametrize("line", ["orders 3", "orders x AAECAwQFBgcICQoLDA0ODw", "orders 3 short"])
def test_a_line_that_says_nothing_is_named(line: str) -> None:
    with pytest.raises(CorruptLogError, match=r"path line 2: .* is not 'topic partition topic-id'"):
        decode_lost_replicas(f"{encode_lost_replicas(LOST[:1])}{line}\n", "path")


def test_a_later_version_is_refused() -> None:
    with pytest.raises(NewerFormatError, match="format 2 was written by a newer braidlog"):
        decode_lost_replicas("version 2\nwhatever it says then\n", "path")
    assert len(decode_lost_replicas("version 2 AAECAwQFBgcICQoLDA0ODw\n", "path")) == 1
