"""Connections that do nothing, or stop in the middle: others are served, and each costs little memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.held_connections import HeldConnections, allow_handles

import braidlog
from braidlog.client.admin.topics import NewTopic
from support.broker import BRAIDLOG
from support.guarded_broker import start_guarded
from support.numbered import NumberedWriter

KIB = 1 << 10
PARTITIONS = {"honest": 2}
# Measured: about 4 KiB. Python's allocator takes memory in larger pieces, and other work goes on meanwhile.
MOST_BYTES_EACH = 40 * KIB
A_BUG = "a bug"


@pytest.mark.parametrize(("idle", "half_open"), [(1_000, 50), pytest.param(10_000, 200, marks=pytest.mark.long)])
def test_idle_and_half_open_connections_are_served_and_cost_little(tmp_path: Path, idle: int, half_open: int) -> None:
    allow_handles(idle + half_open)
    with start_guarded(BRAIDLOG, tmp_path) as broker:
        with braidlog.Admin(bootstrap_servers=broker.at("PLAINTEXT")) as admin:
            admin.create_topics([NewTopic(topic, count) for topic, count in PARTITIONS.items()]).raise_for_errors()
        held = HeldConnections(broker.ports["PLAINTEXT"])
        writer = NumberedWriter(broker.at("PLAINTEXT"), PARTITIONS)
        try:
            with writer.running():
                # What the first of each kind loads does not count.
                held.open_idle(10)
                held.open_half_handshakes(broker.ports["SASLTLS"], 2)
                writer.check(broker.at("PLAINTEXT"))
                before = broker.process.rss_bytes()
                held.open_idle(idle - 10)
                held.open_half_frames(half_open // 2)
                held.open_half_handshakes(broker.ports["SASLTLS"], half_open - half_open // 2 - 2)
                each = (broker.process.rss_bytes() - before) / (idle + half_open)
                acknowledged = writer.acknowledged
                # Everybody is there still, and is answered.
                assert held.ask() == idle
                assert held.still_half_open() == half_open
                writer.flush()
                assert writer.acknowledged > acknowledged
            writer.check(broker.at("PLAINTEXT"))
        finally:
            held.close()
        assert each < MOST_BYTES_EACH, f"{each / KIB:.1f} KiB each"
        bugs = [line for line in broker.process.lines if A_BUG in line or line.startswith("Traceback")]
        assert not bugs, broker.process.log(200)
        print(f"{idle} idle and {half_open} half-open connections: {each / KIB:.1f} KiB each")
