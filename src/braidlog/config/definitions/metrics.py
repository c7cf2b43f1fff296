"""How metrics are sampled and reported in Kafka; braidlog serves Prometheus text instead."""

from __future__ import annotations

from typing import Final

from braidlog.config.rules import at_least
from braidlog.config.setting import BOOLEAN, CLUSTER_WIDE, INT, LIST, LONG, LOW, STRING, Setting

PROMETHEUS: Final = "metrics are cumulative and served as Prometheus text"
TELEMETRY: Final = "metrics pushed by clients are not collected"

SETTINGS: Final = (
    Setting("metrics.num.samples", INT, 2, LOW, rule=at_least(1), no_effect=PROMETHEUS,
        doc="Samples kept for a metric.",
    ),
    Setting("metrics.sample.window.ms", LONG, 30000, LOW, rule=at_least(1), no_effect=PROMETHEUS,
        doc="Length of one sample of a metric.",
    ),
    Setting("metric.reporters", LIST, "", LOW, mode=CLUSTER_WIDE, no_effect=PROMETHEUS,
        doc="Classes that report metrics.",
    ),
    Setting("metrics.recording.level", STRING, "INFO", LOW, no_effect=PROMETHEUS,
        doc="Which metrics are recorded.",
    ),
    Setting("auto.include.jmx.reporter", BOOLEAN, True, LOW, no_effect=PROMETHEUS,
        doc="Report metrics over JMX too.",
    ),
    Setting("kafka.metrics.reporters", LIST, "", LOW, no_effect=PROMETHEUS,
        doc="Classes that report the older metrics.",
    ),
    Setting("kafka.metrics.polling.interval.secs", INT, 10, LOW, rule=at_least(1), no_effect=PROMETHEUS,
        doc="How often the older metrics are reported.",
    ),
    Setting("telemetry.max.bytes", INT, 1_048_576, LOW, rule=at_least(1), no_effect=TELEMETRY,
        doc="Largest batch of metrics accepted from a client.",
    ),
)
