"""How far moves are, from what brokers hold."""

from __future__ import annotations

import pytest

from braidlog.cli.reassignment.moves import Move
from braidlog.cli.reassignment.progress import MoveProgress, duration_text
from braidlog.core.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
MIB = 1 << 20


def test_bytes_rate_and_time_left() -> None:
    progress = MoveProgress([Move(A, (0,), (1, 2), 100 * MIB), Move(B, (0, 1), (1, 0), 50 * MIB)])
    assert progress.text() == "0 of 2 partitions moved, 0 B of 200.0 MiB"
    sizes = {(A, 0): 100 * MIB, (A, 1): 10 * MIB}
    progress.look({A}, sizes, 10.0)
    assert progress.text() == "1 of 2 partitions moved, 10.0 MiB of 200.0 MiB"
    progress.look({A}, {**sizes, (A, 1): 20 * MIB, (A, 2): 10 * MIB}, 12.0)
    assert progress.rate == 10 * MIB
    assert progress.text() == "1 of 2 partitions moved, 30.0 MiB of 200.0 MiB, 10.0 MiB/s, 17 s left"
    progress.look(set(), {}, 30.0)
    assert progress.partitions_done == 2
    assert progress.copied == progress.total == 200 * MIB


def test_a_log_that_shrinks_is_not_copied_beyond_its_end() -> None:
    progress = MoveProgress([Move(A, (0,), (1,), 100)])
    progress.look({A}, {(A, 0): 40, (A, 1): 60}, 1.0)
    assert (progress.copied, progress.total) == (40, 40)
    progress.look({A}, {}, 2.0)
    assert (progress.copied, progress.total) == (0, 100)
    assert progress.rate == 0
    assert progress.seconds_left is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7300, "2 h 1 min")]
)
def test_times_for_people(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
