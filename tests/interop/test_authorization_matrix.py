"""Every api in every situation of rules, asked of Apache Kafka 3.9 and of us, rules and logins over the wire.

What both must answer is in `support/authorization_probes.py`. Requests that brokers send each other are asked on
ZooKeeper; what Kafka serves in KRaft mode only is asked there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from support.authorization_matrix import Probe, cells
from support.authorization_probes import INTER_BROKER, PROBES
from support.authorized_peers import KRAFT, ZOOKEEPER, Peer, start_kafka_peer, start_own_peer

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka")]

ASKED = {mode: [probe for probe in (*PROBES, *INTER_BROKER) if mode in probe.modes] for mode in (ZOOKEEPER, KRAFT)}


QUOTAS = {"DescribeClientQuotas", "AlterClientQuotas"}


def unlike(peer: Peer, probes: Sequence[Probe]) -> list[str]:
    found: list[str] = []
    for probe in probes:
        for cell in cells(probe, peer.world):
            peer.rules(cell.acls)
            answer = peer.ask(cell.user, probe)
            if answer != cell.expected:
                found.append(f"{probe.title}: {cell.situation}: {answer!r}, not {cell.expected!r}")
    return found


@pytest.mark.parametrize("mode", [ZOOKEEPER, KRAFT])
def test_kafka_answers_as_the_table_says(mode: str, tmp_path: Path) -> None:
    with start_kafka_peer(mode, tmp_path) as kafka:
        assert unlike(kafka, ASKED[mode]) == []


@pytest.mark.parametrize("mode", [ZOOKEEPER, KRAFT])
def test_we_answer_as_the_table_says(mode: str, tmp_path: Path) -> None:
    with start_own_peer(mode, tmp_path) as ours:
        served = [probe for probe in ASKED[mode] if ours.serves(probe)]
        # Quotas are on their way.
        assert {probe.api for probe in ASKED[mode]} - {probe.api for probe in served} <= QUOTAS
        assert unlike(ours, served) == []
