from __future__ import annotations

import re

from braidlog.metric_names import CATALOGUE, COUNTER


def test_every_declared_metric_follows_prometheus_and_kafka() -> None:
    for metric in CATALOGUE.values():
        assert re.fullmatch(r"(kafka|braidlog|process)_[a-z0-9_]+", metric.name)
        assert metric.help.endswith(".")
        assert "le" not in metric.labels
        if metric.name.startswith("kafka_"):
            assert metric.mbean.startswith("kafka.")
        # Kafka's one counter without a rate keeps its name.
        if metric.kind == COUNTER and not metric.name.endswith("killedcount"):
            assert metric.name.endswith("_total")
