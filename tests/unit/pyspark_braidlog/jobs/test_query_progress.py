"""Pace and lag from what Spark reports."""

from __future__ import annotations

from pyspark_braidlog.jobs.running import QueryProgress, lag_of, lag_seconds_of

SOURCE = {
    "endOffset": {"@ids": {"orders": "x"}, "orders": {"0": 20, "1": 5}},
    "latestOffset": {"orders": {"0": 25, "1": 5, "2": 9}},
}


def test_a_pace_in_a_line() -> None:
    pace = QueryProgress.of(
        {
            "id": "59f0db33-ad96",
            "name": "clean",
            "batchId": 7,
            "numInputRows": 1200,
            "processedRowsPerSecond": 1234.5,
            "batchDuration": 972,
            "sources": [SOURCE],
        }
    )
    assert pace.text() == "clean: batch 7, 1,234 rows/s, 1.0 s a batch, lag 5"


def test_a_query_without_a_name_or_a_topic() -> None:
    pace = QueryProgress.of(
        {"id": "59f0db33-ad96", "batchId": 0, "sources": [{"endOffset": "17", "latestOffset": None}]}
    )
    assert pace.text() == "query 59f0db33: batch 0, 0 rows/s, 0.0 s a batch"


def test_lag_of_several_sources_in_either_form() -> None:
    text = {"endOffset": '{"a":{"0":1}}', "latestOffset": '{"a":{"0":3}}'}
    assert lag_of([SOURCE, text]) == 7
    assert lag_of([{"endOffset": "not json", "latestOffset": "{}"}]) is None
    # What was read since the end was asked for is no negative lag.
    assert lag_of([{"endOffset": '{"a":{"0":5}}', "latestOffset": '{"a":{"0":3}}'}]) == 0


def test_seconds_where_a_source_says_them() -> None:
    timed = {**SOURCE, "latestOffset": {"@lag": {"offsets": 5, "seconds": 12.4}, **SOURCE["latestOffset"]}}
    unknown = {"endOffset": '{"a":{"0":1}}', "latestOffset": '{"@lag":{"offsets":2,"seconds":null},"a":{"0":3}}'}
    assert (lag_of([timed, unknown]), lag_seconds_of([timed, unknown, SOURCE])) == (7, 12.4)
    assert lag_seconds_of([SOURCE, unknown, {"latestOffset": "17"}, {"latestOffset": None}]) is None
    pace = QueryProgress.of({"id": "x", "name": "clean", "batchId": 7, "sources": [timed]})
    assert pace.text() == "clean: batch 7, 0 rows/s, 0.0 s a batch, lag 5 (12 s)"
