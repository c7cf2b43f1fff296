"""What is drawn; tests/cluster/test_watching.py has it on a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.cli.watching.top_screen import number_text, rate_text, screen_lines


def report(groups: int = 1, **changes: Any) -> dict[str, Any]:
    broker = {
        "broker": 1, "address": "h:9092", "rack": None, "state": "up", "leads": 3, "replicas": 3, "not_online": 0,
        "controller": True, "bytes_in_per_second": 2048.0, "bytes_out_per_second": None,
        "replicated_in_per_second": 0.0, "records_in_per_second": 12345.6, "requests_per_second": 9.0, "idle": 0.9,
        "memory_bytes": 1 << 20,
    }  # fmt: skip
    return {
        "cluster_id": "abc", "controller": 1, "seconds": 2, "partitions": 3, "offline": 0, "under_replicated": 1,
        "under_min_isr": None, "bytes_in_per_second": 2048.0, "bytes_out_per_second": None,
        "records_in_per_second": 12345.6, "requests_per_second": 9.0, "brokers": [broker], "topics": [],
        "groups": [
            {"group": f"g{each}", "state": "Stable", "lag": each, "lag_change_per_second": -1.4}
            for each in range(groups)
        ],
        "not_in_sync": [
            {"topic": "t", "partition": 0, "leader": 1, "broker": 2, "behind_records": 40, "behind_seconds": 12.5}
        ],
        "unread_metrics": {}, **changes,
    }  # fmt: skip


def test_the_whole() -> None:
    assert screen_lines(report()) == [
        "cluster abc  controller 1  1 of 1 brokers up",
        "partitions 3: 0 offline, 1 under-replicated",
        "in 2.0 KiB/s  out -  records 12,346/s  requests 9/s",
        "",
        "BROKERS",
        "BROKER  STATE  IN         OUT  COPIED  RECORDS/S  REQUESTS/S  IDLE  LEADS  REPLICAS  NOT-ONLINE  MEMORY   RACK"
        "  ADDRESS",
        "1*      up     2.0 KiB/s  -    0 B/s   12,346     9           90%   3      3         0           1.0 MiB  -   "
        "  h:9092",
        "",
        "REPLICAS NOT IN SYNC",
        "TOPIC  PARTITION  LEADER  BROKER  BEHIND  FOR",
        "t      0          1       2       40      12 s",
        "",
        "GROUPS",
        "GROUP  STATE   LAG  LAG/S",
        "g0     Stable  0    -1",
    ]


def test_what_is_missing_is_said() -> None:
    lines = screen_lines(report(controller=None, under_min_isr=2, unread_metrics={"2": "it has none"}, not_in_sync=[]))
    assert lines[0].startswith("cluster abc  no controller  ")
    assert lines[1] == "partitions 3: 0 offline, 1 under-replicated, 2 under min.insync.replicas"
    assert lines[3] == "no metrics of broker 2: it has none"
    assert "REPLICAS NOT IN SYNC" not in lines


@pytest.mark.parametrize("height", [1, 3, 5, 8, 12, 16, 20, 24, 40, 100])
def test_what_does_not_fit_is_cut(height: int) -> None:
    lines = screen_lines(report(groups=50), height)
    assert len(lines) <= height
    everything = screen_lines(report(groups=50))
    shown = sum(line.startswith("g") for line in lines)
    if "GROUPS" in lines and shown < 50:
        assert lines[-1] == f"… {50 - shown} more"
    else:
        assert lines == everything[: len(lines)]
    if height >= len(everything):
        assert lines == everything


def test_numbers_for_people() -> None:
    assert (rate_text(None), rate_text(0.0), rate_text(1536.0)) == ("-", "0 B/s", "1.5 KiB/s")
    assert (number_text(None), number_text(0), number_text(1234567.8)) == ("-", "0", "1,234,568")
