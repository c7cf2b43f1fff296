"""Plans in the format of Kafka's own tool."""

from __future__ import annotations

import json
from typing import Any

import pytest

from braidlog.cli.reassignment.kafka_json import parse_plan, plan_text
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

# As kafka-reassign-partitions --generate of 3.9 prints it.
GENERATED = (
    '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[2,0],"log_dirs":["any","any"]},'
    '{"topic":"orders","partition":1,"replicas":[0,1],"log_dirs":["any","/data/b"]}]}'
)


def test_what_kafka_wrote_is_read() -> None:
    plan = parse_plan(GENERATED, "plan.json")
    assert plan.replicas == {TopicPartition("orders", 0): (2, 0), TopicPartition("orders", 1): (0, 1)}
    assert plan.log_dirs == {(TopicPartition("orders", 1), 1): "/data/b"}


def test_what_is_written_is_read_again() -> None:
    replicas = {TopicPartition("ü", 1): (1,), TopicPartition("a", 0): (3, 2)}
    text = plan_text(replicas)
    assert parse_plan(text, "plan.json").replicas == replicas
    assert json.loads(text)["partitions"][0] == {
        "topic": "a",
        "partition": 0,
        "replicas": [3, 2],
        "log_dirs": ["any", "any"],
    }


def entry(**changed: Any) -> dict[str, Any]:
    return {"topic": "a", "partition": 0, "replicas": [1, 2]} | changed


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("{", "is no JSON"),
        ([], "is no plan"),
        ({"partitions": {}}, "is no plan"),
        ({"version": 2, "partitions": []}, "of version 2"),
        ({"partitions": []}, "has no partitions"),
        ({"partitions": [7]}, "entry 1 is no object"),
        ({"partitions": [entry(topic="")]}, "entry 1 has no topic"),
        ({"partitions": [entry(partition=-1)]}, "has no partition"),
        ({"partitions": [entry(partition=True)]}, "has no partition"),
        ({"partitions": [entry(replicas=[])]}, "has no replicas"),
        ({"partitions": [entry(replicas=[1, "2"])]}, "has no replicas"),
        ({"partitions": [entry(replicas=[1, 1])]}, "names a broker twice"),
        ({"partitions": [entry(), entry()]}, "entry 2: a-0 is there twice"),
        ({"partitions": [entry(log_dirs=["any"])]}, "a directory for each replica"),
    ],
)
def test_what_is_wrong_is_said(document: Any, problem: str) -> None:
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(UserError, match=problem):
        parse_plan(text, "plan.json")
