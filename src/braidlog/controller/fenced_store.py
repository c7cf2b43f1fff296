"""The coordination store as the controller changes it: every transaction is fenced by the controller epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from braidlog.cluster import paths, records
from braidlog.cluster.store import (
    BadVersionError,
    Check,
    CoordinationStore,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
    StoreError,
    UnknownOutcomeError,
    operation_bytes,
)
from braidlog.controller.plan import Put, Remove, Step
from braidlog.core.protocol_errors import NotControllerError
from braidlog.core.types import BrokerId


class FencedStore:
    """Made by `elect`: one ephemeral node names the controller, and each new one raises the epoch.

    Every commit checks the version of the epoch's node, so a broker that was replaced without knowing changes nothing;
    and it checks the session's lease first.
    """

    def __init__(self, store: CoordinationStore, epoch: int, epoch_version: int) -> None:
        self._store = store
        self.epoch = epoch
        self._fence = Check(paths.CONTROLLER_EPOCH, epoch_version)
        self._revoked = False

    @classmethod
    async def elect(cls, store: CoordinationStore, broker_id: BrokerId, now_ms: int) -> FencedStore:
        """Raises NotControllerError if another broker is the controller.

        A node of our own session is ours: an earlier claim whose answer was lost, or a resignation that did not reach
        the store. Its epoch may have been used, so a new one begins.
        """
        while True:
            epoch_node, claimed = await store.get_many([paths.CONTROLLER_EPOCH, paths.CONTROLLER])
            if claimed is not None and claimed.stat.ephemeral_owner != store.session_id:
                raise NotControllerError(f"another broker is the controller; see {paths.CONTROLLER} in the store")
            if epoch_node is None:
                epoch, epoch_version = 1, 0
                advance: Operation = Create(paths.CONTROLLER_EPOCH, records.encode_controller_epoch(epoch))
            else:
                epoch = records.decode_controller_epoch(paths.CONTROLLER_EPOCH, epoch_node.data) + 1
                epoch_version = epoch_node.stat.version + 1
                data = records.encode_controller_epoch(epoch)
                advance = SetData(paths.CONTROLLER_EPOCH, data, epoch_node.stat.version)
            if claimed is None:
                claim: Operation = Create(
                    paths.CONTROLLER, records.encode_controller(broker_id, now_ms), ephemeral=True
                )
            else:
                claim = Check(paths.CONTROLLER, claimed.stat.version)
            store.lease.check()
            try:
                await store.multi([claim, advance])
            except (BadVersionError, NodeExistsError, NoNodeError, UnknownOutcomeError):
                continue  # another broker was faster, or we were without hearing of it: look again
            return cls(store, epoch, epoch_version)

    def revoke(self) -> None:
        """This broker is not the controller any more: nothing is committed from here on."""
        self._revoked = True

    async def commit(self, steps: Sequence[Step]) -> None:
        """One transaction, or several where the store does not take that much at once.

        Raises NotControllerError if another broker became the controller.
        """
        operations = await self._operations(steps)
        for transaction in self._cut(operations):
            if self._revoked:
                raise NotControllerError("this broker is not the controller any more")
            self._store.lease.check()
            try:
                await self._store.multi([self._fence, *transaction])
            except StoreError as refusal:
                if refusal.path == paths.CONTROLLER_EPOCH:
                    raise NotControllerError("another broker became the controller") from refusal
                raise
        if self._revoked:
            raise NotControllerError("this broker is not the controller any more")

    async def give_up(self) -> None:
        """Remove the node that names us, so that another broker is elected at once."""
        self.revoke()
        self._store.lease.check()
        await self._store.multi([self._fence, Delete(paths.CONTROLLER)])

    def _cut(self, operations: Sequence[Operation]) -> Iterator[Sequence[Operation]]:
        limit = self._store.max_request_bytes - operation_bytes(self._fence)
        start, size = 0, 0
        for place, operation in enumerate(operations):
            needed = operation_bytes(operation)
            if size + needed > limit and place > start:
                yield operations[start:place]
                start, size = place, 0
            size += needed
        yield operations[start:]

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


def _parts(operations: Sequence[Operation], limit: int) -> list[list[Operation]]:
    """As few as go into one request each; at least one, since also a commit of nothing is fenced."""
    parts: list[list[Operation]] = [[]]
    size = 0
    for operation in operations:
        each = operation_bytes(operation)
        if parts[-1] and size + each > limit:
            parts.append([])
            size = 0
        parts[-1].append(operation)
        size += each
    return parts
