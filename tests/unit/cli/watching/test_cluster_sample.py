from __future__ import annotations

from typing import Any

from braidlog.cli.watching.cluster_sample import ClusterSample, GroupLag, page_rate, report
from braidlog.cli.watching.metrics_pages import MetricsPage
from braidlog.client.admin.cluster_description import BrokerDescription, ClusterDescription
from braidlog.client.admin.topics import PartitionDescription, TopicDescription
from braidlog.core.types import TopicPartition

CLUSTER = ClusterDescription(
    "abc", 1, (BrokerDescription(1, "h", 9092, "a"), BrokerDescription(2, "h", 9093, None)), None
)
TOPICS = (
    TopicDescription("busy", None, False, (PartitionDescription(0, 1, 4, (1, 2), (1,), ()),)),
    TopicDescription("quiet", None, False, (PartitionDescription(0, 2, 4, (2, 1), (1, 2), ()),)),
    TopicDescription("lost", None, False, (PartitionDescription(0, None, 4, (9,), (9,), (9,)),)),
)
PLACE = TopicPartition("busy", 0)


def page(at_s: float, *, count: int, **more: float) -> MetricsPage:
    topics = "kafka_server_brokertopicmetrics_"
    lines = [
        f'{topics}bytesin_total{{topic="busy"}} {count * 100}',
        f'{topics}bytesout_total{{topic="busy"}} {count * 300}',
        f'{topics}messagesin_total{{topic="busy"}} {count}',
        f"{topics}replicationbytesin_total {count * 7}",
        f'kafka_network_requestmetrics_requests_total{{request="Produce"}} {count * 2}',
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent 0.25",
        "kafka_server_replicamanager_underminisrpartitioncount 1",
        'braidlog_replica_behind_records{topic="busy",partition="0",broker="2"} 40',
        'braidlog_replica_behind_seconds{topic="busy",partition="0",broker="2"} 12.5',
        *(f"{name} {value}" for name, value in more.items()),
    ]
    return MetricsPage("\n".join(lines), None, at_s, at_s)


def sample(
    at_s: float, pages: dict[int, MetricsPage], *, end: int = 0, lag: int | None = None, **more: Any
) -> ClusterSample:
    unread = {each: "it has none" for each in (1, 2) if each not in pages}
    groups = (GroupLag("readers", "Stable", lag), GroupLag("none", "Empty", None))
    return ClusterSample(at_s, CLUSTER, TOPICS, pages, unread, {PLACE: end}, groups)


def test_rates_stand_on_the_pages() -> None:
    before = sample(10, {1: page(10, count=100), 2: page(10, count=0)}, lag=100)
    now = sample(12, {1: page(12, count=150), 2: page(12, count=10)}, lag=60)
    found = report(before, now)
    assert (found["bytes_in_per_second"], found["bytes_out_per_second"]) == (3000, 9000)
    assert (found["records_in_per_second"], found["requests_per_second"]) == (30, 60)
    assert (found["cluster_id"], found["controller"], found["seconds"]) == ("abc", 1, 2)
    assert (found["partitions"], found["offline"], found["under_replicated"], found["under_min_isr"]) == (3, 1, 1, 2)
    first, second, gone = found["brokers"]
    assert (first["broker"], first["controller"], first["rack"], first["leads"]) == (1, True, "a", 1)
    assert (first["bytes_in_per_second"], first["replicated_in_per_second"], first["idle"]) == (2500, 175, 0.25)
    assert (second["not_online"], second["memory_bytes"]) == (1, None)
    assert (gone["broker"], gone["state"], gone["address"]) == (9, "down", None)
    assert found["topics"] == [
        {
            "topic": "busy",
            "partitions": 1,
            "bytes_in_per_second": 3000,
            "bytes_out_per_second": 9000,
            "records_in_per_second": 30,
        }
    ]
    assert found["unread_metrics"] == {}


def test_groups_by_lag_and_replicas_by_how_far_they_are_behind() -> None:
    pages = {1: page(10, count=1), 2: page(10, count=1)}
    found = report(sample(10, pages, lag=100), sample(12, pages, lag=60))
    assert found["groups"] == [
        {"group": "readers", "state": "Stable", "lag": 60, "lag_change_per_second": -20},
        {"group": "none", "state": "Empty", "lag": None, "lag_change_per_second": None},
    ]
    behind, lost = found["not_in_sync"]
    assert (behind["topic"], behind["broker"], behind["behind_records"], behind["behind_seconds"]) == (
        "busy",
        2,
        40,
        12.5,
    )
    assert (lost["topic"], lost["leader"], lost["behind_records"]) == ("lost", None, None)


def test_records_are_counted_by_the_ends_of_logs_where_there_is_no_page() -> None:
    found = report(sample(10, {}, end=1000), sample(14, {}, end=1200))
    first, second, _ = found["brokers"]
    assert (first["records_in_per_second"], first["bytes_in_per_second"]) == (50, None)
    # Nothing is known of what the other leads, so nothing of the whole.
    assert (second["records_in_per_second"], found["records_in_per_second"]) == (None, None)
    assert (found["under_min_isr"], found["topics"]) == (None, [])
    assert found["unread_metrics"] == {"1": "it has none", "2": "it has none"}


def test_a_broker_that_was_started_again_has_no_rate_at_first() -> None:
    name = "kafka_network_requestmetrics_requests_total"
    assert page_rate(name, page(10, count=500), page(12, count=3)) is None
    assert page_rate(name, None, page(12, count=3)) is None
    assert page_rate(name, page(12, count=3), page(12, count=3)) is None
