"""Each request of a transaction, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from braidlog.client.consumer.offsets.offset_and_metadata import ConsumerGroupMetadata, OffsetAndMetadata
from braidlog.client.producer.transactions.coordinator_client import TransactionCoordinatorClient
from braidlog.client.producer.transactions.requests import ProducerIdAndEpoch
from support.transaction_fakes import HERE

GROUP = ConsumerGroupMetadata("g", 5, "member", "instance")


ME = ProducerIdAndEpoch(7, 0)


Ask = Callable[[TransactionCoordinatorClient], Awaitable[object]]


ASKED: dict[str, Ask] = {
    "init": lambda coordinator: coordinator.initialise(ME),
    "add partitions": lambda coordinator: coordinator.add_partitions(ME, {HERE: None}, lambda: True),
    "add offsets": lambda coordinator: coordinator.add_group(ME, "g", lambda: True),
    "commit offsets": lambda coordinator: coordinator.commit_offsets(
        ME, GROUP, {HERE: OffsetAndMetadata(3, "m", 2)}, lambda: True
    ),
    "end": lambda coordinator: coordinator.end(ME, True),
}
