"""What became of the rest of a range."""

from __future__ import annotations

import pytest

from braidlog import Producer
from braidlog.testing import Broker
from pyspark_braidlog.source.data_loss import Cause, LogRange, find_log_range, loss_of
from pyspark_braidlog.source.offset_range import OffsetRange

WORK = OffsetRange("t", 0, 100, 200, "id")


@pytest.mark.parametrize(
    ("position", "now", "cause", "resume"),
    [
        (100, None, Cause.DELETION, 200),
        (150, LogRange("other", 0, 500), Cause.RECREATION, 200),
        (100, LogRange("id", 101, 500), Cause.RETENTION, 101),
        (150, LogRange("id", 199, 500), Cause.RETENTION, 199),
        (150, LogRange("id", 400, 500), Cause.RETENTION, 200),
        (150, LogRange("id", 0, 199), Cause.TRUNCATION, 200),
        # A log that was cut and then lost its start: the start is what is missed first.
        (150, LogRange("id", 160, 170), Cause.RETENTION, 160),
        # Clusters without ids cannot tell, and are believed.
        (150, LogRange("", 160, 500), Cause.RETENTION, 160),
    ],
)
def test_causes(position: int, now: LogRange | None, cause: Cause, resume: int) -> None:
    loss = loss_of(WORK, position, now)
    assert loss is not None
    assert (loss.cause, loss.resume, loss.lost) == (cause, resume, resume - position)
    assert "failOnDataLoss=false" in str(loss.refusal())
    assert f"{loss.lost} offsets" in loss.notice()


@pytest.mark.parametrize("now", [LogRange("id", 0, 200), LogRange("", 100, 200), LogRange("id", 100, 1000)])
def test_what_the_log_has_is_no_loss(now: LogRange) -> None:
    assert loss_of(WORK, 100, now) is None


def test_advice_fits_the_cause() -> None:
    def reported(now: LogRange | None) -> str:
        loss = loss_of(WORK, 100, now)
        assert loss is not None
        return str(loss.refusal())

    assert "retention.ms" in reported(LogRange("id", 150, 500))
    assert "run the query again" in reported(LogRange("other", 0, 500))
    assert "unclean leader election" in reported(LogRange("id", 0, 120))
    assert "created again" not in reported(LogRange("id", 0, 120))
    nameless = loss_of(OffsetRange("t", 0, 100, 200), 150, LogRange("", 0, 120))
    assert "or the topic was deleted and created again" in str(nameless)


def test_a_look_at_a_real_log(braidlog_broker: Broker) -> None:
    topic = braidlog_broker.create_topic(partitions=2)
    client = {"bootstrap.servers": braidlog_broker.bootstrap_servers}
    with braidlog_broker.producer() as producer:
        for _ in range(3):
            producer.send(topic, b"v", partition=1)
        producer.flush()
    now = find_log_range(client, OffsetRange(topic, 1, 0, 3))
    assert now is not None
    assert (now.start, now.end, len(now.topic_id)) == (0, 3, 22)
    assert find_log_range(client, OffsetRange(topic, 2, 0, 3)) is None
    assert find_log_range(client, OffsetRange("never-heard-of", 0, 0, 3)) is None


def test_what_an_open_transaction_holds_back_was_not_cut_off(braidlog_broker: Broker) -> None:
    topic = braidlog_broker.create_topic()
    servers = braidlog_broker.bootstrap_servers
    work = OffsetRange(topic, 0, 0, 2)
    with Producer(bootstrap_servers=servers, transactional_id="find_log_range") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(2):
            producer.send(topic, b"undecided").result()
        now = find_log_range({"bootstrap.servers": servers, "isolation.level": "read_committed"}, work)
        producer.abort_transaction()
    assert now is not None
    assert loss_of(work, 0, now) is None
