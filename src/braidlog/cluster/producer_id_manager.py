"""Producer ids: each broker gets blocks of a thousand, by the controller's hand, and gives them out one by one."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable

from braidlog.cluster import paths, records
from braidlog.cluster.records import PRODUCER_ID_BLOCK_SIZE, ProducerIdBlock
from braidlog.cluster.store import BadVersionError, CoordinationStore, UnknownOutcomeError, ensure_path
from braidlog.core.errors import FatalError
from braidlog.core.protocol_errors import CoordinatorLoadInProgressError, ProtocolError
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId, ProducerId

log = logging.getLogger("braidlog.cluster")

_MAX_PRODUCER_ID = (1 << 63) - 1


async def claim_block(store: CoordinationStore, broker_id: BrokerId) -> ProducerIdBlock:
    """The next block, for this broker alone: a broker that claimed meanwhile moved the version, and we look again."""
    path = paths.PRODUCER_ID_BLOCK
    while True:
        if await store.exists(path) is None:
            await ensure_path(store, path)
        node = await store.get(path)
        first = records.decode_producer_id_block(path, node.data).last + 1 if node.data else 0
        last = first + PRODUCER_ID_BLOCK_SIZE - 1
        if last > _MAX_PRODUCER_ID:
            raise FatalError("all producer ids of this cluster are used up")
        block = ProducerIdBlock(broker_id, first, last)
        try:
            await store.set(path, records.encode_producer_id_block(block), node.stat.version)
        except (BadVersionError, UnknownOutcomeError):
            await store.sync()  # at worst a block that no broker gives out
            continue
        return block


class ProducerIdManager:
    """Never gives an id twice; what a stopped broker had left of its block is skipped for good."""

    def __init__(self, claim: Callable[[], Awaitable[ProducerIdBlock]], tasks: Tasks) -> None:
        """`claim` gets the next block from the controller."""
        self._claim_block = claim
        self._tasks = tasks
        self._claiming = False
        # Two producers that meet an empty block each claim one: the second block waits here for its turn.
        self._blocks: deque[ProducerIdBlock] = deque()

    async def next_id(self) -> ProducerId:
        await self.reserve()
        return self.take()

    async def reserve(self) -> None:
        """Have an id at hand: the next `take`, if nothing else is awaited before it, cannot fail."""
        while not self._blocks:
            self._blocks.append(await self._claim_block())

    def take(self) -> ProducerId:
        """An id at once; where there is none a block is claimed, and the client is to try again."""
        if not self._blocks:
            if not self._claiming:
                self._claiming = True
                self._tasks.spawn("claiming producer ids", self._claim())
            raise CoordinatorLoadInProgressError("producer ids are being claimed; try again")
        block = self._blocks.popleft()
        if block.first < block.last:
            self._blocks.appendleft(block._replace(first=block.first + 1))
        return ProducerId(block.first)

    async def _claim(self) -> None:
        try:
            await self.reserve()
        except ProtocolError as problem:
            # Whoever asks next claims again.
            log.warning("no producer ids could be claimed: %s", problem)
        finally:
            self._claiming = False
