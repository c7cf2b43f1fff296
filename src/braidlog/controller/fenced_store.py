"""The coordination store as the controller changes it: every transaction is fenced by the controller epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from braidlog.cluster import paths, records
from braidlog.cluster.store import (
    ANY_VERSION,
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
from braidlog.core.time_slice import TimeSlice
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

        A node of our own session is ours: a claim whose answer was lost, or a resignation that did not reach the store.
        In the latter case a new epoch begins, as requests of the old one may still be under way.
        """
        tried: set[int] = set()
        while True:
            # In this order: while the first is ours, nobody else raises the second.
            claimed, epoch_node = await store.get_many([paths.CONTROLLER, paths.CONTROLLER_EPOCH])
            if claimed is not None and claimed.stat.ephemeral_owner != store.session_id:
                raise NotControllerError(f"another broker is the controller; see {paths.CONTROLLER} in the store")
            if epoch_node is None:
                epoch, epoch_version = 1, 0
                advance: Operation = Create(paths.CONTROLLER_EPOCH, records.encode_controller_epoch(epoch))
            else:
                found = records.decode_controller_epoch(paths.CONTROLLER_EPOCH, epoch_node.data)
                if claimed is not None and found in tried:
                    return cls(store, found, epoch_node.stat.version)
                epoch, epoch_version = found + 1, epoch_node.stat.version + 1
                data = records.encode_controller_epoch(epoch)
                advance = SetData(paths.CONTROLLER_EPOCH, data, epoch_node.stat.version)
            if claimed is None:
                name = records.encode_controller(broker_id, now_ms)
                claim: Operation = Create(paths.CONTROLLER, name, ephemeral=True)
            else:
                claim = Check(paths.CONTROLLER, claimed.stat.version)
            store.lease.check()
            try:
                await store.multi([claim, advance])
            except (BadVersionError, NodeExistsError, NoNodeError, UnknownOutcomeError) as problem:
                if isinstance(problem, UnknownOutcomeError):
                    tried.add(epoch)
                # Another broker was faster, or we were without hearing of it. A server that lags would not show it.
                await store.sync()
                continue
            return cls(store, epoch, epoch_version)

    def revoke(self) -> None:
        """This broker is not the controller any more: nothing is committed from here on."""
        self._revoked = True

    async def commit(self, steps: Sequence[Step]) -> None:
        """One transaction, or several where the store does not take that much at once.

        Raises NotControllerError if another broker became the controller.
        """
        operations = await self._operations(steps)
        for part in _parts(operations, self._store.max_request_bytes - operation_bytes(self._fence)):
            while not await self._has_committed(part):
                pass
        self._check_in_office()

    async def _has_committed(self, operations: Sequence[Operation]) -> bool:
        """False if the answer was lost and nothing has changed: once more, then."""
        self._check_in_office()
        self._store.lease.check()
        try:
            await self._store.multi([self._fence, *operations])
        except UnknownOutcomeError:
            return await self._took_effect(operations)
        except StoreError as refusal:
            if refusal.path == paths.CONTROLLER_EPOCH:
                raise NotControllerError("another broker became the controller") from refusal
            raise
        return True

    async def _took_effect(self, operations: Sequence[Operation]) -> bool:
        """Any operation tells for all of them. Without one that tells, repeating them does no harm."""
        await self._store.sync()
        for operation in operations:
            (node,) = await self._store.get_many([operation.path])
            if isinstance(operation, Delete):
                return node is None
            if isinstance(operation, Create) and not operation.sequential:
                return node is not None and node.data == operation.data
            if isinstance(operation, SetData) and operation.version != ANY_VERSION:
                return node is not None and (node.stat.version, node.data) == (operation.version + 1, operation.data)
        return False

    def _check_in_office(self) -> None:
        if self._revoked:
            raise NotControllerError("this broker is not the controller any more")

    async def give_up(self) -> None:
        """Remove the node that names us, so that another broker is elected at once."""
        self.revoke()
        self._store.lease.check()
        await self._store.multi([self._fence, Delete(paths.CONTROLLER)])

    async def _operations(self, steps: Sequence[Step]) -> list[Operation]:
        """A `Put` becomes Create or SetData, a `Remove` becomes Delete or nothing."""
        unconditional = [step.path for step in steps if isinstance(step, Put | Remove)]
        existing: set[str] = set()
        if unconditional:
            found = await self._store.get_many(unconditional)
            existing = {path for path, node in zip(unconditional, found, strict=True) if node is not None}
        operations: list[Operation] = []
        # Others ran since the nodes were looked at in any case: what changed meanwhile, the store refuses.
        time_slice = TimeSlice()
        for step in steps:
            await time_slice.yield_if_over()
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


def _parts(operations: Sequence[Operation], limit: int) -> Iterator[list[Operation]]:
    """As few as go into one request each; at least one, since also a commit of nothing is fenced."""
    part: list[Operation] = []
    size = 0
    for operation in operations:
        each = operation_bytes(operation)
        if part and size + each > limit:
            yield part
            part, size = [], 0
        part.append(operation)
        size += each
    yield part
