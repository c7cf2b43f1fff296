"""Becoming the controller: one ephemeral node says who it is, and an epoch fences whoever believes it still is."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from braidlog.cluster import paths, records
from braidlog.cluster.store import (
    BadVersionError,
    CoordinationStore,
    Create,
    NodeExistsError,
    NoNodeError,
    SetData,
)
from braidlog.core.protocol_errors import NotControllerError
from braidlog.core.types import BrokerId


class Mandate(NamedTuple):
    """`epoch_version` is the version of the epoch's node: every change checks that it still holds."""

    epoch: int
    epoch_version: int


async def claim(store: CoordinationStore, broker_id: BrokerId, now_ms: int) -> Mandate:
    """Raises NotControllerError if another broker is the controller."""
    while True:
        try:
            node = await store.get(paths.CONTROLLER_EPOCH)
        except NoNodeError:
            with suppress(NodeExistsError):
                await store.create(paths.CONTROLLER_EPOCH, records.encode_controller_epoch(0))
            continue
        epoch = records.decode_controller_epoch(paths.CONTROLLER_EPOCH, node.data) + 1
        try:
            await store.multi(
                [
                    Create(paths.CONTROLLER, records.encode_controller(broker_id, now_ms), ephemeral=True),
                    SetData(paths.CONTROLLER_EPOCH, records.encode_controller_epoch(epoch), node.stat.version),
                ]
            )
        except BadVersionError:
            continue
        except NodeExistsError:
            raise NotControllerError(f"another broker is the controller; see {paths.CONTROLLER} in the store") from None
        return Mandate(epoch, node.stat.version + 1)
