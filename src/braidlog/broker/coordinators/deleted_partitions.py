"""Whether a partition is gone from the cluster, by the store's word: what this broker was told may be behind."""

from __future__ import annotations

import logging
from collections.abc import Callable

from braidlog.cluster import paths
from braidlog.cluster.records import BadRecordError, decode_topic
from braidlog.cluster.store import CoordinationStore, SessionExpiredError, StoreConnectionError, StoreError
from braidlog.core.tasks import Tasks
from braidlog.core.types import TopicPartition

log = logging.getLogger("braidlog.transactions")


class DeletedPartitions:
    def __init__(self, store: CoordinationStore, tasks: Tasks) -> None:
        self._store = store
        self._tasks = tasks

    def is_gone(self, partition: TopicPartition, done: Callable[[bool], None]) -> None:
        self._tasks.spawn(f"looking for {partition}", self._tell(partition, done))

    async def _tell(self, partition: TopicPartition, done: Callable[[bool], None]) -> None:
        try:
            gone = await self._look(partition)
        except (StoreError, StoreConnectionError, SessionExpiredError, BadRecordError) as problem:
            log.warning("whether %s still exists cannot be read now: %s", partition, problem)
            gone = False
        done(gone)

    async def _look(self, partition: TopicPartition) -> bool:
        """A topic that is being deleted is as good as gone: nobody will ever read its end."""
        await self._store.sync()
        path = paths.topic(partition.topic)
        topic, deletion = await self._store.get_many([path, paths.deleted_topic(partition.topic)])
        if topic is None or deletion is not None:
            return True
        return partition.partition >= len(decode_topic(path, topic.data).partitions)
