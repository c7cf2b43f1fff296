"""deploy/grafana/braidlog.json, a dashboard for Grafana over the numbers that Prometheus scrapes from brokers.

python -m tools.grafana_dashboard
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

PATH: Final = Path(__file__).parent.parent / "deploy/grafana/braidlog.json"

_WIDTH: Final = 24
_STAT_HEIGHT: Final = 4
_GRAPH_HEIGHT: Final = 8
# Grafana replaces these.
_OF: Final = 'job="$job",instance=~"$instance"'
_RATE: Final = "[$__rate_interval]"


class Query(NamedTuple):
    expr: str
    # How a line is called.
    legend: str = "{{instance}}"


class Panel(NamedTuple):
    title: str
    unit: str
    queries: tuple[Query, ...]
    # Of a single number: "high" is red from 1 on, "low" below 1.
    stat: str = ""


def _graph(title: str, unit: str, *queries: str | tuple[str, str]) -> Panel:
    return Panel(title, unit, tuple(Query(each) if isinstance(each, str) else Query(*each) for each in queries))


def _stat(title: str, expr: str, bad: str) -> Panel:
    return Panel(title, "short", (Query(expr, ""),), bad)


def _rate(metric: str, by: str = "instance", labels: str = "") -> str:
    selector = f"{_OF},{labels}" if labels else _OF
    return f"sum by ({by}) (rate({metric}{{{selector}}}{_RATE}))"


def _quantile(metric: str, by: str, labels: str = "", share: float = 0.99) -> str:
    selector = f"{_OF},{labels}" if labels else _OF
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket{{{selector}}}{_RATE})))"


def _all(metric: str, labels: str = "") -> str:
    return f"{metric}{{{_OF},{labels}}}" if labels else f"{metric}{{{_OF}}}"


def _sum(metric: str, by: str = "") -> str:
    return f"sum by ({by}) ({_all(metric)})" if by else f"sum({_all(metric)})"


def _top(expr: str) -> str:
    return f"topk(10, {expr})"


_TOPIC: Final = "kafka_server_brokertopicmetrics_"
_REPLICAS: Final = "kafka_server_replicamanager_"
_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_TIMES: Final = "kafka_network_requestmetrics_"
_SESSION: Final = "kafka_server_sessionexpirelistener_"
_SOCKETS: Final = "kafka_server_socket_server_metrics_"
_CLIENTS: Final = 'request=~"Produce|Fetch"'
_ERRORS: Final = 'error!="NONE"'

ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Overview": (
        _stat("Brokers up", 'sum(up{job="$job"})', "low"),
        _stat("Controllers", _sum(_CONTROLLER + "activecontrollercount"), "low"),
        _stat("Offline partitions", _sum(_CONTROLLER + "offlinepartitionscount"), "high"),
        _stat("Under-replicated", _sum(_REPLICAS + "underreplicatedpartitions"), "high"),
        _stat("Refusing acks=all", _sum(_REPLICAS + "underminisrpartitioncount"), "high"),
        _stat("Failed data directories", _sum("kafka_log_logmanager_offlinelogdirectorycount"), "high"),
    ),
    "Traffic": (
        _graph("Bytes in", "Bps", _rate(_TOPIC + "bytesin_total")),
        _graph("Bytes out", "Bps", _rate(_TOPIC + "bytesout_total")),
        _graph("Records in", "cps", _rate(_TOPIC + "messagesin_total")),
        _graph("Busiest topics, bytes in", "Bps", (_top(_rate(_TOPIC + "bytesin_total", "topic")), "{{topic}}")),
        _graph("Requests", "reqps", (_top(_rate(_TIMES + "requests_total", "request")), "{{request}}")),
        _graph(
            "Answers with an error",
            "reqps",
            (_top(_rate(_TIMES + "errors_total", "request, error", _ERRORS)), "{{request}} {{error}}"),
        ),
    ),
    "Latency": (
        _graph("Requests, 99 of 100", "ms", (_quantile(_TIMES + "totaltimems", "request", _CLIENTS), "{{request}}")),
        _graph("Work on them", "ms", (_quantile(_TIMES + "localtimems", "request", _CLIENTS), "{{request}}")),
        _graph(
            "Waiting for replicas, records or disks",
            "ms",
            (_quantile(_TIMES + "remotetimems", "request", _CLIENTS), "{{request}}"),
        ),
        _graph(
            "Time without work",
            "percentunit",
            _all("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent"),
        ),
        _graph("Longest stall of the event loop", "s", _all("braidlog_event_loop_lag_max_seconds")),
        _graph(
            "Waiting requests",
            "short",
            (_sum("kafka_server_delayedoperationpurgatory_purgatorysize", "delayedoperation"), "{{delayedoperation}}"),
        ),
    ),
    "Replication": (
        _graph("Under-replicated, by leader", "short", _all(_REPLICAS + "underreplicatedpartitions")),
        _graph(
            "In-sync replicas that leave and join",
            "cps",
            (_rate(_REPLICAS + "isrshrinks_total"), "{{instance}} leave"),
            (_rate(_REPLICAS + "isrexpands_total"), "{{instance}} join"),
        ),
        _graph("Records behind, at most", "short", _all("kafka_server_replicafetchermanager_maxlag")),
        _graph(
            "Time that replicas are out of sync",
            "s",
            (f"max by (broker) ({_all('braidlog_replica_behind_seconds')})", "broker {{broker}}"),
        ),
        _graph("Copied from leaders", "Bps", _rate(_TOPIC + "replicationbytesin_total")),
        _graph(
            "Time that leaders are not reached",
            "s",
            (
                f"max by (instance, leader) ({_all('braidlog_replica_fetcher_unreachable_seconds')})",
                "{{instance}} → {{leader}}",
            ),
        ),
        _graph("Leaders by broker", "short", _all(_REPLICAS + "leadercount")),
        _graph("Replicas by broker", "short", _all(_REPLICAS + "partitioncount")),
        _graph("Partitions that are being moved", "short", _all(_REPLICAS + "reassigningpartitions")),
    ),
    "Controller": (
        _graph(
            "Elections",
            "cps",
            (_rate("braidlog_leader_elections_total", "job"), "all"),
            (_rate("kafka_controller_controllerstats_uncleanleaderelections_total", "job"), "unclean"),
        ),
        _graph("Work, 99 of 100", "ms", (_quantile("kafka_controller_controllerstats_timems", "state"), "{{state}}")),
        _graph("Events that wait", "short", _all("kafka_controller_controllereventmanager_eventqueuesize")),
        _graph(
            "Requests to brokers that wait",
            "short",
            (_sum("kafka_controller_controllerchannelmanager_queuesize", "broker_id"), "broker {{broker_id}}"),
        ),
        _graph(
            "Topics and partitions",
            "short",
            (_sum(_CONTROLLER + "globaltopiccount"), "topics"),
            (_sum(_CONTROLLER + "globalpartitioncount"), "partitions"),
        ),
        _graph(
            "Not led by their preferred replica",
            "short",
            (_sum(_CONTROLLER + "preferredreplicaimbalancecount"), "partitions"),
        ),
    ),
    "ZooKeeper": (
        _graph("Brokers with a session", "short", _all(_SESSION + "sessionstate", 'state="CONNECTED"')),
        _graph(
            "Requests, 99 of 100",
            "ms",
            _quantile("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms", "instance"),
        ),
        _graph(
            "Lost connections and sessions",
            "cps",
            (_rate(_SESSION + "zookeeperdisconnects_total"), "{{instance}} connections"),
            (_rate(_SESSION + "zookeeperexpires_total"), "{{instance}} sessions"),
        ),
    ),
    "Groups, transactions and clients": (
        _graph(
            "Groups", "short", (_sum("kafka_coordinator_group_groupmetadatamanager_numgroups", "state"), "{{state}}")
        ),
        _graph("Transactional ids", "short", (_sum("braidlog_transactional_ids", "state"), "{{state}}")),
        _graph("Connections", "short", (_sum(_SOCKETS + "connection_count", "instance"), "{{instance}}")),
        _graph(
            "Refused connections and logins",
            "cps",
            (_rate("braidlog_connections_refused_total", "reason"), "{{reason}}"),
            (_rate(_SOCKETS + "failed_authentication_total", "listener"), "logins {{listener}}"),
        ),
        _graph("Connections that are throttled", "short", _all("braidlog_throttled_connections")),
        _graph("Appends with acks=all, timed out", "cps", _rate("kafka_server_delayedproducemetrics_expires_total")),
    ),
    "Storage and process": (
        _graph("Largest topics, all replicas", "bytes", (_top(_sum("kafka_log_log_size", "topic")), "{{topic}}")),
        _graph("Syncs, 99 of 100", "ms", _quantile("kafka_log_logflushstats_logflushtimems", "instance")),
        _graph("Memory", "bytes", _all("process_resident_memory_bytes")),
        _graph("Processor", "percentunit", _rate("process_cpu_seconds_total")),
        _graph("Open files", "short", _all("process_open_fds")),
        _graph(
            "Memory pools",
            "percentunit",
            (
                f"{_all('braidlog_memory_used_bytes')} / {_all('braidlog_memory_limit_bytes')}",
                "{{instance}} {{pool}}",
            ),
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    return {
        "uid": "braidlog",
        "title": "braidlog",
        "tags": ["braidlog", "kafka"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables())},
        "annotations": {"list": []},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "refresh": 1,
    }
    for name, label, query, several in (
        ("job", "Job", "label_values(braidlog_info, job)", False),
        ("instance", "Broker", 'label_values(braidlog_info{job="$job"}, instance)', True),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": _DATASOURCE,
            "query": {"query": query, "refId": name},
            "definition": query,
            "refresh": 2,
            "sort": 1,
            "multi": several,
            "includeAll": several,
            "allValue": ".*" if several else None,
            "current": {"text": "All", "value": "$__all"} if several else {},
            "hide": 0,
        }


_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def _panels() -> Iterator[dict[str, Any]]:
    """Rows of panels side by side, six numbers or three graphs."""
    number = 0
    top = 0
    for row, panels in ROWS.items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row,
            "collapsed": False,
            "panels": [],
            "gridPos": _at(0, top, 24, 1),
        }
        top += 1
        height = _STAT_HEIGHT if panels[0].stat else _GRAPH_HEIGHT
        in_a_row = 6 if panels[0].stat else 3
        width = _WIDTH // in_a_row
        for place, panel in enumerate(panels):
            number += 1
            left, below = place % in_a_row * width, place // in_a_row * height
            yield {"id": number, "gridPos": _at(left, top + below, width, height), **_panel(panel)}
        top += -(-len(panels) // in_a_row) * height


def _at(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel) -> dict[str, Any]:
    shared = {
        "title": panel.title,
        "datasource": _DATASOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _DATASOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                **({"instant": True} if panel.stat else {"range": True}),
            }
            for place, query in enumerate(panel.queries)
        ],
    }
    if panel.stat:
        first, second = ("green", "red") if panel.stat == "high" else ("red", "green")
        steps = [{"color": first, "value": None}, {"color": second, "value": 1}]
        return {
            "type": "stat",
            **shared,
            "fieldConfig": {
                "defaults": {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}},
                "overrides": [],
            },
            "options": {"colorMode": "background", "graphMode": "none", "reduceOptions": {"calcs": ["lastNotNull"]}},
        }
    return {
        "type": "timeseries",
        **shared,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 10, "showPoints": "never"}},
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def main() -> None:
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
