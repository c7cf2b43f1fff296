"""What the driver refuses before it plans a write, and what goes to the tasks."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from braidlog.core.errors import UserError
from pyspark_braidlog.sink import writers
from pyspark_braidlog.sink.target_topics import TargetTopics
from pyspark_braidlog.sink.writers import BatchWriter, StreamWriter, new_batch_writer, new_stream_writer

SCHEMA = StructType([StructField("value", StringType())])
OPTIONS = {"kafka.bootstrap.servers": "h:1", "topic": "t"}


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = TargetTopics(lambda options, consumer_strategy: None)
    monkeypatch.setattr(writers, "TARGET_TOPICS", targets)


def test_writers_go_to_tasks() -> None:
    assert isinstance(pickle.loads(pickle.dumps(new_batch_writer(OPTIONS, SCHEMA, False))), BatchWriter)
    assert isinstance(pickle.loads(pickle.dumps(new_stream_writer(OPTIONS, SCHEMA, True))), StreamWriter)


def test_topics_are_not_overwritten() -> None:
    with pytest.raises(UserError, match="mode overwrite is not possible"):
        new_batch_writer(OPTIONS, SCHEMA, True)


def test_a_batch_needs_a_name_to_be_written_once() -> None:
    with pytest.raises(UserError, match="needs the option sinkName"):
        new_batch_writer({**OPTIONS, "delivery": "exactly-once"}, SCHEMA, False)
    new_batch_writer({**OPTIONS, "delivery": "exactly-once", "sinkName": "x"}, SCHEMA, False)
    # Streams have one sink.
    new_stream_writer(OPTIONS, SCHEMA, False)
