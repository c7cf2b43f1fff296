"""Whether a cluster has come to rest: no transaction is open in any partition, and no coordinator has one to end."""

from __future__ import annotations

from typing import Final

from braidlog import Admin
from braidlog.client.admin.transactions import TransactionState
from braidlog.core.types import TopicPartition
from support.eventually import eventually

# Markers of the last transactions are written, also those that a coordinator has to take up again.
NOTHING_OPEN_WITHIN_S: Final = 60.0
UNFINISHED: Final = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def open_transactions(bootstrap: str) -> list[str]:
    """Each with where it is open, or in which state its coordinator has it."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        topics = admin.describe_topics().raise_for_errors().values()
        places = [TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions]
        producers = admin.describe_producers(places).raise_for_errors()
        found = [
            f"{place} since offset {each.transaction_start}"
            for place, some in producers.items()
            for each in some
            if each.transaction_start >= 0
        ]
        listed = admin.list_transactions(states=UNFINISHED)
        return found + [f"{each.transactional_id}: {each.state}" for each in listed]


def check_nothing_is_open(bootstrap: str) -> None:
    found: list[str] = []

    def nothing_is_open() -> bool:
        found[:] = open_transactions(bootstrap)
        return not found

    try:
        eventually(nothing_is_open, NOTHING_OPEN_WITHIN_S)
    except AssertionError:
        raise AssertionError(f"transactions that nobody ends: {found}") from None
