"""Turns a plan's steps into store operations, looking up what the unconditional ones need to know."""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.cluster.store import CoordinationStore, Create, Delete, Operation, SetData
from braidlog.controller.plan import Put, Remove, Step


async def resolve(store: CoordinationStore, steps: Sequence[Step]) -> list[Operation]:
    """A `Put` becomes Create or SetData, a `Remove` becomes Delete or nothing."""
    unconditional = [step.path for step in steps if isinstance(step, Put | Remove)]
    there: set[str] = set()
    if unconditional:
        found = await store.get_many(unconditional)
        there = {path for path, node in zip(unconditional, found, strict=True) if node is not None}
    operations: list[Operation] = []
    for step in steps:
        if isinstance(step, Put):
            operations.append(SetData(step.path, step.data) if step.path in there else Create(step.path, step.data))
            there.add(step.path)
        elif isinstance(step, Remove):
            if step.path in there:
                operations.append(Delete(step.path))
                there.discard(step.path)
        else:
            operations.append(step)
    return operations
