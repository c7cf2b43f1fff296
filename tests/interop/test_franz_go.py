"""franz-go: groups of every balancer, transactions with group sessions, and its admin client."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.peers.golang import go_program
from tools.peers.maven import PeerMissing

from support.broker import Broker
from support.scenario_lines import outcomes

pytestmark = [pytest.mark.peer]

SOURCE = Path(__file__).parent / "go"
SCENARIOS = (
    "cooperative", "sticky", "range", "round-robin", "server-side", "static", "resume", "regex", "ten-at-once",
    "commit-and-abort", "fencing", "transact-session", "transact-sessions-rebalance",
    "admin-groups", "admin-transactions",
)  # fmt: skip


@pytest.fixture(scope="module")
def said(quick_broker: Broker) -> dict[str, str]:
    try:
        program = go_program(SOURCE)
    except PeerMissing as missing:
        pytest.skip(str(missing))
    return outcomes([str(program), quick_broker.bootstrap])


@pytest.mark.timeout(900)  # the first of them may build the program
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(said: dict[str, str], scenario: str) -> None:
    assert said.get(scenario) == "PASS"
