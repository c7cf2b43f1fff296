"""Becoming the controller: one ephemeral node says who it is, and an epoch fences whoever believes it still is."""

from __future__ import annotations

from typing import NamedTuple

from braidlog.cluster import paths, records
from braidlog.cluster.store import (
    BadVersionError,
    CoordinationStore,
    Create,
    NodeExistsError,
    Operation,
    SetData,
)
from braidlog.core.protocol_errors import NotControllerError
from braidlog.core.types import BrokerId


class ControllerEpoch(NamedTuple):
    """`epoch_version` is the version of the epoch's node: every change checks that it still holds."""

    epoch: int
    epoch_version: int


async def claim(store: CoordinationStore, broker_id: BrokerId, now_ms: int) -> ControllerEpoch:
    """Raises NotControllerError if another broker is the controller."""
    while True:
        (node,) = await store.get_many([paths.CONTROLLER_EPOCH])
        if node is None:
            controller_epoch = ControllerEpoch(1, 0)
            advance: Operation = Create(paths.CONTROLLER_EPOCH, records.encode_controller_epoch(1))
        else:
            epoch = records.decode_controller_epoch(paths.CONTROLLER_EPOCH, node.data) + 1
            controller_epoch = ControllerEpoch(epoch, node.stat.version + 1)
            advance = SetData(paths.CONTROLLER_EPOCH, records.encode_controller_epoch(epoch), node.stat.version)
        node_of_controller = records.encode_controller(broker_id, now_ms)
        try:
            await store.multi([Create(paths.CONTROLLER, node_of_controller, ephemeral=True), advance])
        except BadVersionError:
            continue
        except NodeExistsError as taken:
            if taken.path == paths.CONTROLLER_EPOCH:
                continue
            raise NotControllerError(f"another broker is the controller; see {paths.CONTROLLER} in the store") from None
        return controller_epoch
