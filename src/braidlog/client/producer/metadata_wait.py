"""What a record's caller may have to wait for, and whether its thread may wait at all."""

from __future__ import annotations

import asyncio

from braidlog.client.cluster_view import TopicView
from braidlog.client.errors import ClientError
from braidlog.client.metadata import Metadata
from braidlog.client.network.engine import Engine
from braidlog.client.producer.sender import Sender


class EngineMetadataWait:
    """Refers to the engine's side only, so that a producer nobody refers to any more can go."""

    def __init__(self, max_block_s: float) -> None:
        self._max_block_s = max_block_s
        self._engine: Engine | None = None
        self._sender: Sender | None = None
        self._metadata: Metadata | None = None

    def connect(self, engine: Engine, sender: Sender, metadata: Metadata) -> None:
        self._engine = engine
        self._sender = sender
        self._metadata = metadata

    def in_event_loop(self) -> bool:
        return asyncio._get_running_loop() is not None

    def wake(self) -> None:
        if self._sender is not None:
            self._sender.wake()

    def await_topic(self, topic: str, partition: int, timeout_s: float) -> None:
        if self._engine is None or self._sender is None:
            raise ClientError("the producer is not ready yet")
        self._engine.run(self._sender.wait_for_topic(topic, timeout_s, partition))

    def find_topic(self, topic: str) -> TopicView | None:
        """The topic's metadata, waited for unless this thread runs a loop."""
        if self._metadata is None:
            return None
        found = self._metadata.view.topic(topic)
        if found is None and not self.in_event_loop():
            self.await_topic(topic, -1, self._max_block_s)
            found = self._metadata.view.topic(topic)
        return found
