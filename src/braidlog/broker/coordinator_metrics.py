"""What the metrics page says of groups and transactions, counted when it is asked for."""

from __future__ import annotations

from collections import Counter

from braidlog.broker.coordinators.coordinators import Coordinators
from braidlog.metrics import MetricsRegistry


def add_coordinator_metrics(registry: MetricsRegistry, coordinators: Coordinators) -> None:
    groups, transactions = coordinators.groups, coordinators.transactions

    def group_states() -> list[tuple[tuple[str, ...], float]]:
        counts = Counter(
            (group.kind, group.state_name()) for shard in groups.active_shards() for group in shard.groups.values()
        )
        return [(labels, count) for labels, count in sorted(counts.items())]

    def transaction_states() -> list[tuple[tuple[str, ...], float]]:
        counts = Counter(
            transaction.state.name
            for shard in transactions.active_shards()
            for transaction in shard.transactions.values()
        )
        return [((state,), count) for state, count in sorted(counts.items())]

    registry.read_each("kafka_coordinator_group_groupmetadatamanager_numgroups", group_states)
    registry.read(
        "kafka_coordinator_group_groupmetadatamanager_numoffsets",
        lambda: sum(shard.offsets.count for shard in groups.active_shards()),
    )
    registry.read_each("braidlog_transactional_ids", transaction_states)
    registry.read_each(
        "braidlog_coordinator_partitions_loading",
        lambda: [((each.topic,), len(each.loading_partitions())) for each in (groups, transactions)],
    )
