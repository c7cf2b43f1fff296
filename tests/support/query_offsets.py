"""The offsets of a batch in a checkpoint of Spark."""

from __future__ import annotations

OFFSETS = (
    'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"@ids": {"orders": "x"}, "orders": {"0": 20, "1": 7}}'
)
