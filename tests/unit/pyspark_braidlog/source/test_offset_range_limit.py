from __future__ import annotations

import pickle

from braidlog import TopicPartition
from pyspark_braidlog.source.offset_range_limit import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    AtTimes,
    Committed,
    Earliest,
    Latest,
)


def test_numbers_in_json_mean_what_kafkas_mean() -> None:
    assert (LATEST, EARLIEST) == (-1, -2)


def test_limits_are_values_that_travel_to_tasks() -> None:
    place = {TopicPartition("t", 0): 5}
    for limit in (
        Earliest(),
        Latest(),
        AtOffsets(place, "startingOffsets"),
        AtTime(7, "startingTimestamp"),
        AtTimes(place, "startingOffsetsByTimestamp"),
        Committed("g", "earliest"),
    ):
        assert pickle.loads(pickle.dumps(limit)) == limit
    assert Earliest() != Latest()
