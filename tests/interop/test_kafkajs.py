"""kafkajs: producer, consumer groups, transactions and its admin client."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.peers.maven import PeerMissing
from tools.peers.node import node_command

from support.broker import Broker
from support.scenario_lines import outcomes

pytestmark = [pytest.mark.peer]

SCRIPT = Path(__file__).parent / "node" / "scenarios.js"
SCENARIOS = (
    "produce", "group", "eight-at-once", "round-robin", "resume", "manual-commit", "transactions", "exactly-once",
    "zombie-producer", "admin-groups",
)  # fmt: skip


@pytest.fixture(scope="module")
def said(quick_broker: Broker) -> dict[str, str]:
    try:
        command = node_command(SCRIPT, quick_broker.bootstrap)
    except PeerMissing as missing:
        pytest.skip(str(missing))
    return outcomes(command)


@pytest.mark.timeout(600)  # the first of them may fetch the package
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(said: dict[str, str], scenario: str) -> None:
    assert said.get(scenario) == "PASS"
