"""How a broker enters the cluster: the store's first paths, the cluster id, a broker id, its registration.

Each of these may be repeated: a call whose outcome is unknown is settled by reading, and what another broker did at the
same time is as good as if we had done it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from braidlog.cluster import paths, records
from braidlog.cluster.records import BrokerRecord, FeaturesRecord
from braidlog.cluster.store import (
    CoordinationStore,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    UnknownOutcomeError,
    ensure_path,
)
from braidlog.core.errors import FatalError
from braidlog.core.ids import id_text, random_id
from braidlog.core.types import BrokerId

# Times the session timeout: ZooKeeper looks for dead sessions once a tick, and no timeout is shorter than two of them.
_PATIENCE: Final = 1.5

_log = logging.getLogger("braidlog.cluster")


async def prepare_store(store: CoordinationStore) -> None:
    """Create the paths that every broker expects; at most starts they are all there and this only reads."""
    wanted = list(dict.fromkeys(prefix for path in paths.PERSISTENT_PATHS for prefix in _prefixes(path)))
    found = await store.get_many(wanted)
    missing = [path for path, node in zip(wanted, found, strict=True) if node is None]
    if not missing:
        return
    try:
        await store.multi([Create(path) for path in missing])
    except UnknownOutcomeError:
        await store.sync()
    except NodeExistsError:  # another broker does the same right now
        pass
    else:
        return
    for path in missing:
        await ensure_path(store, path)


def _prefixes(path: str) -> list[str]:
    """The path and its parents, outermost first."""
    names = path[1:].split("/")
    return ["/" + "/".join(names[:depth]) for depth in range(1, len(names) + 1)]


async def cluster_id(
    store: CoordinationStore, new_id: Callable[[], bytes] = random_id, initial: FeaturesRecord | None = None
) -> str:
    """The id of the cluster behind this store, made up by the first broker that asks.

    Where that is this one, and no other broker is there, the ensemble is ours: the `initial` features are
    written together with the id, so that a broker that does not know them finds both or none.
    """
    while True:
        try:
            node = await store.get(paths.CLUSTER_ID)
            return records.decode_cluster_id(paths.CLUSTER_ID, node.data)
        except NoNodeError:
            await ensure_path(store, paths.CLUSTER)
        steps: list[Operation] = [Create(paths.CLUSTER_ID, records.encode_cluster_id(id_text(new_id())))]
        if initial is not None and await _is_unused(store):
            steps.append(Create(paths.FEATURE, records.encode_features(initial)))
        try:
            await store.multi(steps)
        except (NodeExistsError, UnknownOutcomeError):
            await store.sync()


async def _is_unused(store: CoordinationStore) -> bool:
    """Whether no broker has been here: none has written features, and none is registered."""
    if await store.exists(paths.FEATURE) is not None:
        return False
    try:
        return not await store.children(paths.BROKER_IDS)
    except NoNodeError:
        return True


async def finalized_features(
    store: CoordinationStore, initial: FeaturesRecord, *, initialised_here: bool
) -> FeaturesRecord:
    """What `/feature` says; written if it is missing.

    `initial` levels are for an ensemble that braidlog has initialised. In any other nothing is finalised, since brokers
    of another kind may be in it: `{"features":{},"version":2,"status":1}`, as Kafka 3.9 writes it.
    """
    while True:
        try:
            node = await store.get(paths.FEATURE)
            return records.decode_features(paths.FEATURE, node.data)
        except NoNodeError:
            record = initial if initialised_here else initial._replace(levels={})
        try:
            await store.create(paths.FEATURE, records.encode_features(record))
        except (NodeExistsError, UnknownOutcomeError):
            await store.sync()


async def generate_broker_id(store: CoordinationStore, reserved_max: int = 1000) -> BrokerId:
    """An id above `reserved.broker.max.id` that no other broker was ever given."""
    await ensure_path(store, paths.BROKER_SEQUENCE)
    while True:
        try:
            stat = await store.set(paths.BROKER_SEQUENCE, b"")
        except UnknownOutcomeError:
            continue  # at worst an id that no broker has
        return BrokerId(reserved_max + stat.version)


async def last_broker_id(store: CoordinationStore, reserved_max: int = 1000) -> BrokerId | None:
    """The id that was generated last; none if there was none so far."""
    stat = await store.exists(paths.BROKER_SEQUENCE)
    return BrokerId(reserved_max + stat.version) if stat is not None and stat.version > 0 else None


async def register(store: CoordinationStore, broker_id: BrokerId, record: BrokerRecord) -> int:
    """Announce the broker for as long as this session lives; returns its epoch.

    The node's owner tells whose it is. Ours may be there already, of a call before this one or of one whose answer was
    lost. Another session's may be that of this broker's last life, which the store keeps for its session timeout: it is
    waited for that long. One that stays is another broker's, and a mistake of configuration.
    """
    path = paths.broker(broker_id)
    data = records.encode_broker(record)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + store.session_timeout_s * _PATIENCE
    while (owner := await _registered_by(store, path, data)) != store.session_id:
        left_s = deadline - loop.time()
        if left_s > 0:
            _log.warning(
                "broker id %d is still registered, by session %#x: waiting up to %.1f s for that session to end",
                broker_id, owner, left_s,
            )  # fmt: skip
        if left_s <= 0 or not await _changes_within(store, path, left_s):
            raise FatalError(
                f"broker id {broker_id} is registered by another broker that is alive: give this one its own "
                "broker.id, or wait for the other's session to end"
            )
    stat = await store.exists(path)
    if stat is None or stat.ephemeral_owner != store.session_id:
        raise FatalError(f"the registration of broker {broker_id} was removed at once; see who else uses the store")
    return stat.czxid


async def _registered_by(store: CoordinationStore, path: str, data: bytes) -> int:
    """Create the node, or renew what is ours; returns its owner."""
    while True:
        try:
            await store.create(path, data, ephemeral=True)
            return store.session_id
        except (NodeExistsError, UnknownOutcomeError):
            await store.sync()
        stat = await store.exists(path)
        if stat is None:
            continue
        if stat.ephemeral_owner == store.session_id:
            try:
                await store.set(path, data)
            except (NoNodeError, UnknownOutcomeError):
                continue
        return stat.ephemeral_owner


async def _changes_within(store: CoordinationStore, path: str, seconds: float) -> bool:
    changed = asyncio.Event()
    if await store.exists(path, lambda event: changed.set()) is None:
        return True
    try:
        await asyncio.wait_for(changed.wait(), seconds)
    except TimeoutError:
        return False
    return True


async def unregister(store: CoordinationStore, broker_id: BrokerId) -> None:
    while True:
        try:
            await store.delete(paths.broker(broker_id))
        except UnknownOutcomeError:
            continue
        except NoNodeError:
            pass
        return
