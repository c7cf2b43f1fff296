"""What is asked before a transaction is aborted, and how one is described."""

from __future__ import annotations

from dataclasses import replace

from braidlog.cli.commands.transactions import described
from braidlog.client.admin.transactions import TransactionDescription, TransactionState
from braidlog.core.types import TopicPartition

PLACE = TopicPartition("orders", 0)


def test_only_an_open_transaction_has_a_duration() -> None:
    transaction = TransactionDescription("t", 1, 7, 0, TransactionState.ONGOING, 60_000, 1_000_000, (PLACE,))
    assert described(transaction, 1_002.5, "json")["duration_ms"] == 2_500
    # The coordinator's clock may be ahead of ours.
    assert described(transaction, 999.0, "json")["duration_ms"] == 0
    ended = described(replace(transaction, state=TransactionState.COMPLETE_COMMIT, partitions=()), 1_002.5, "table")
    assert (ended["duration_ms"], ended["partitions"]) == (None, None)
    assert ended["start_time"] == "1970-01-01T00:16:40.000+00:00"
    never = described(replace(transaction, state=TransactionState.EMPTY, start_ms=-1), 1_002.5, "json")
    assert (never["start_time_ms"], never["duration_ms"]) == (None, None)
