"""The controller of the cluster: one queue and one worker that decide, commit to the store, and publish the image."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from braidlog.cluster.image import ClusterImage, ImageListener
from braidlog.controller.requests import (
    ConfigChanges,
    ConfigResult,
    ControllerSettings,
    DeletedTopicResult,
    FullConfig,
    NewPartitions,
    NewTopic,
    NewTopicResult,
    OngoingReassignment,
    PartitionResult,
    Reassignment,
    TopicRef,
    TopicResult,
)
from braidlog.core.clock import Clock
from braidlog.core.ids import random_id
from braidlog.core.types import BrokerId, TopicPartition


class Controller:
    """Start it after the broker is registered; every call below waits for its turn in the one queue.

    Results come in the order asked. A result is given once the change is durable and every listener has applied it.
    """

    def __init__(
        self,
        store: object,
        broker_id: BrokerId,
        settings: ControllerSettings,
        clock: Clock,
        rng: random.Random,
        new_id: Callable[[], bytes] = random_id,
    ) -> None:
        raise NotImplementedError

    @property
    def image(self) -> ClusterImage:
        raise NotImplementedError

    def add_listener(self, listener: ImageListener) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Become the controller, load the image, publish it to the listeners as one delta, finish open deletions."""
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError

    async def create_topics(self, topics: Sequence[NewTopic], validate_only: bool = False) -> list[NewTopicResult]:
        raise NotImplementedError

    async def delete_topics(self, topics: Sequence[TopicRef]) -> list[DeletedTopicResult]:
        raise NotImplementedError

    async def create_partitions(
        self, topics: Sequence[NewPartitions], validate_only: bool = False
    ) -> list[TopicResult]:
        raise NotImplementedError

    async def alter_configs(self, resources: Sequence[FullConfig], validate_only: bool = False) -> list[ConfigResult]:
        raise NotImplementedError

    async def incremental_alter_configs(
        self, resources: Sequence[ConfigChanges], validate_only: bool = False
    ) -> list[ConfigResult]:
        raise NotImplementedError

    async def elect_leaders(
        self, election_type: int, partitions: Sequence[TopicPartition] | None
    ) -> list[PartitionResult]:
        """None elects for every partition that needs it and answers only for those."""
        raise NotImplementedError

    async def alter_reassignments(self, reassignments: Sequence[Reassignment]) -> list[PartitionResult]:
        raise NotImplementedError

    def list_reassignments(self, partitions: Sequence[TopicPartition] | None) -> list[OngoingReassignment]:
        raise NotImplementedError
