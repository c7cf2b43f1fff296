"""Who a task is, as Spark tells it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import TaskContext

from braidlog.core.errors import UserError
from pyspark_braidlog.sink.task_identity import TaskIdentity

RUN = "0b8f1c1e-6f0d-4f57-9a53-2f3ad7e2c001"
IDS = {"sql.streaming.queryId": "q-1", "streaming.sql.batchId": "12", "spark.jobGroup.id": RUN}


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    yield
    TaskContext._setTaskContext(None)


def within_task(**properties: str) -> None:
    TaskContext._setTaskContext(None)
    TaskContext(partitionId=3, localProperties=properties)


def test_query_batch_task_and_run() -> None:
    within_task(**IDS)
    task = TaskIdentity.current()
    assert task == TaskIdentity("q-1", 12, 3, RUN)
    assert task.name("") == "braidlog-spark-sink.q-1.3"
    assert task.name("audit") == "braidlog-spark-sink.q-1.audit.3"


def test_the_run_may_be_unknown() -> None:
    within_task(**{name: IDS[name] for name in IDS if "jobGroup" not in name})
    assert TaskIdentity.current().run == ""
    # Somebody's own group within foreachBatch, the same in every run.
    within_task(**{**IDS, "spark.jobGroup.id": "nightly"})
    assert TaskIdentity.current().run == ""


@pytest.mark.parametrize("missing", ["sql.streaming.queryId", "streaming.sql.batchId"])
def test_without_the_ids_it_is_refused(missing: str) -> None:
    within_task(**{name: IDS[name] for name in IDS if name != missing})
    with pytest.raises(UserError, match=r"use writeStream, write within foreachBatch \(not over Spark Connect"):
        TaskIdentity.current()


def test_outside_of_a_task_it_is_refused() -> None:
    with pytest.raises(UserError, match="no task context"):
        TaskIdentity.current()
