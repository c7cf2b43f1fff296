"""A query that Apache Kafka does not let in is told so in one line, soon, and without its password."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from braidlog import Admin, Producer
from braidlog.client.admin.topics import NewTopic
from support.broker import KAFKA
from support.guarded_broker import PASSWORD, USER, GuardedBroker, start_guarded
from support.spark_failures import KINDS_OF_QUERY, FailingQueries, target

pytestmark = pytest.mark.peer

TOPIC = "guarded"
WRONG = "wr0ng-w0rd"
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def kafka(apache_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with start_guarded(KAFKA, tmp_path_factory.mktemp("guarded")) as running:
        with Admin(bootstrap_servers=running.at("PLAINTEXT")) as admin:
            admin.create_topics([NewTopic(TOPIC, 1)])
        with Producer(bootstrap_servers=running.at("PLAINTEXT")) as producer:
            producer.send(TOPIC, value=b"for those who may")
        yield running


@pytest.fixture(scope="module")
def ways(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FailingQueries:
    spark.range(10).write.format("noop").mode("overwrite").save()
    return FailingQueries(spark, tmp_path_factory.mktemp("ways"))


def login(kafka: GuardedBroker, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    """As users of Spark's connector write it."""
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return {
        "kafka.bootstrap.servers": kafka.at("SASL"),
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'{LOGIN} username="{USER}" password="{quoted}";',
    }


def test_the_right_password_lets_in(spark: SparkSession, kafka: GuardedBroker) -> None:
    options = {**login(kafka, PASSWORD), "subscribe": TOPIC}
    rows = spark.read.format("braidlog").options(**options).load().collect()
    assert b"for those who may" in [bytes(row.value) for row in rows]
    more = spark.createDataFrame([("more",)], "value string")
    more.write.format("braidlog").options(**login(kafka, PASSWORD), topic=TOPIC).mode("append").save()
    assert spark.read.format("braidlog").options(**options).load().count() == len(rows) + 1


@pytest.mark.parametrize("way", KINDS_OF_QUERY)
def test_a_wrong_password(ways: FailingQueries, kafka: GuardedBroker, way: str) -> None:
    reported = ways.failing(way, {**login(kafka, WRONG), **target(way, TOPIC)})
    assert reported.line.startswith(f"the brokers at {kafka.at('SASL')} do not let this query in"), reported.line
    assert "uthentication failed" in reported.line, reported.line
    assert "sasl" in reported.line.lower(), reported.line
    assert WRONG not in reported.text
    assert WRONG not in reported.line


@pytest.mark.parametrize("way", KINDS_OF_QUERY)
def test_no_login_where_one_is_wanted(ways: FailingQueries, kafka: GuardedBroker, way: str) -> None:
    reported = ways.failing(way, {"kafka.bootstrap.servers": kafka.at("SASL"), **target(way, TOPIC)})
    assert kafka.at("SASL") in reported.line, reported.line
    assert "security.protocol" in reported.line, reported.line
