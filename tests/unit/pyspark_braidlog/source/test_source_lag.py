"""How far behind: what is asked, how often, and what is told where nobody answers."""

from __future__ import annotations

from collections.abc import Mapping

from braidlog import TopicPartition
from braidlog.client.arrow.reading import LogSample
from pyspark_braidlog.source.offset_reader import ClusterUnavailable
from pyspark_braidlog.source.source_lag import SourceLag

T0, T1, T2 = (TopicPartition("t", each) for each in range(3))


class World:
    """Each record is a second younger than the one before it; the record at offset 0 came at 1,000 s."""

    def __init__(self) -> None:
        self.now = 50.0
        self.asked: list[dict[TopicPartition, int]] = []
        self.is_away = False
        self.lag = SourceLag(self.samples, now=lambda: self.now, wall=lambda: 1000.0 + self.now)

    def samples(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogSample]:
        self.asked.append(dict(at))
        if self.is_away:
            raise ClusterUnavailable("away")
        return {place: LogSample(1.0, 1_000_000 + offset * 1000) for place, offset in at.items()}


def test_the_oldest_unread_record_counts() -> None:
    world = World()
    assert world.lag.written({T0: 20, T1: 45, T2: 7}, {T0: 30, T1: 50, T2: 7}) == {"offsets": 15, "seconds": 30.0}
    assert world.asked == [{T0: 20, T1: 45}]


def test_nothing_left_is_no_lag_and_no_question() -> None:
    world = World()
    assert world.lag.written({T0: 20, T1: 60}, {T0: 20, T1: 50}) == {"offsets": 0, "seconds": 0.0}
    assert world.lag.written({}, {T0: 5}) == {"offsets": 0, "seconds": 0.0}
    assert world.asked == []


def test_not_with_every_short_batch() -> None:
    world = World()
    world.lag.written({T0: 20}, {T0: 30})
    world.now += 0.5
    # Grown by the time that passed: the record at offset 22 is not looked at yet.
    assert world.lag.written({T0: 22}, {T0: 30}) == {"offsets": 8, "seconds": 30.5}
    world.now += 0.5
    assert world.lag.written({T0: 22}, {T0: 30}) == {"offsets": 8, "seconds": 29.0}
    assert len(world.asked) == 2
    # Once it was caught up, what comes is another story.
    world.lag.written({T0: 30}, {T0: 30})
    assert world.lag.written({T0: 40}, {T0: 41})["seconds"] == 11.0


def test_a_cluster_that_is_away_makes_nobody_wait() -> None:
    world = World()
    world.is_away = True
    for _ in range(3):
        world.now += 5
        assert world.lag.written({T0: 20}, {T0: 30}) == {"offsets": 10, "seconds": None}
    assert len(world.asked) == 1


def test_records_without_a_time_and_clocks_that_differ() -> None:
    world = World()
    world.lag = SourceLag(lambda at: {T0: LogSample(1.0, -1)}, now=lambda: 1.0, wall=lambda: 5.0)
    assert world.lag.written({T0: 0}, {T0: 1}) == {"offsets": 1, "seconds": None}
    world.lag = SourceLag(lambda at: {T0: LogSample(1.0, 9000)}, now=lambda: 1.0, wall=lambda: 5.0)
    assert world.lag.written({T0: 0}, {T0: 1}) == {"offsets": 1, "seconds": 0.0}
