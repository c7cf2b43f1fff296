"""The coordination store as the controller changes it: one transaction a commit, fenced by the controller epoch."""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.cluster import paths, records
from braidlog.cluster.store import (
    BadVersionError,
    Check,
    CoordinationStore,
    Create,
    Delete,
    NodeExistsError,
    Operation,
    SetData,
    StoreError,
)
from braidlog.controller.plan import Put, Remove, Step
from braidlog.core.protocol_errors import NotControllerError
from braidlog.core.types import BrokerId


class FencedStore:
    """Made by `elect`: one ephemeral node names the controller, and each new one raises the epoch.

    Every commit checks the version of the epoch's node, so a broker that was replaced without knowing changes nothing.
    """

    def __init__(self, store: CoordinationStore, epoch: int, epoch_version: int) -> None:
        self._store = store
        self.epoch = epoch
        self._fence = Check(paths.CONTROLLER_EPOCH, epoch_version)

    @classmethod
    async def elect(cls, store: CoordinationStore, broker_id: BrokerId, now_ms: int) -> FencedStore:
        """Raises NotControllerError if another broker is the controller."""
        while True:
            (node,) = await store.get_many([paths.CONTROLLER_EPOCH])
            if node is None:
                epoch, epoch_version = 1, 0
                advance: Operation = Create(paths.CONTROLLER_EPOCH, records.encode_controller_epoch(epoch))
            else:
                epoch = records.decode_controller_epoch(paths.CONTROLLER_EPOCH, node.data) + 1
                epoch_version = node.stat.version + 1
                advance = SetData(paths.CONTROLLER_EPOCH, records.encode_controller_epoch(epoch), node.stat.version)
            claim = Create(paths.CONTROLLER, records.encode_controller(broker_id, now_ms), ephemeral=True)
            try:
                await store.multi([claim, advance])
            except BadVersionError:
                continue
            except NodeExistsError as taken:
                if taken.path == paths.CONTROLLER_EPOCH:
                    continue
                message = f"another broker is the controller; see {paths.CONTROLLER} in the store"
                raise NotControllerError(message) from None
            return cls(store, epoch, epoch_version)

    async def commit(self, steps: Sequence[Step]) -> None:
        """One transaction; raises NotControllerError if another broker became the controller."""
        try:
            await self._store.multi([self._fence, *await self._operations(steps)])
        except StoreError as refusal:
            if refusal.path == paths.CONTROLLER_EPOCH:
                raise NotControllerError("another broker became the controller") from refusal
            raise

    async def _operations(self, steps: Sequence[Step]) -> list[Operation]:
        """A `Put` becomes Create or SetData, a `Remove` becomes Delete or nothing."""
        unconditional = [step.path for step in steps if isinstance(step, Put | Remove)]
        existing: set[str] = set()
        if unconditional:
            found = await self._store.get_many(unconditional)
            existing = {path for path, node in zip(unconditional, found, strict=True) if node is not None}
        operations: list[Operation] = []
        for step in steps:
            if isinstance(step, Put):
                exists = step.path in existing
                operations.append(SetData(step.path, step.data) if exists else Create(step.path, step.data))
                existing.add(step.path)
            elif isinstance(step, Remove):
                if step.path in existing:
                    operations.append(Delete(step.path))
                    existing.discard(step.path)
            else:
                operations.append(step)
        return operations
