"""How a broker enters the cluster: the store's first paths, the cluster id, a broker id, its registration."""

from __future__ import annotations

from collections.abc import Callable

from braidlog.cluster import paths, records
from braidlog.cluster.records import BrokerRecord
from braidlog.cluster.store import CoordinationStore, Create, NodeExistsError, NoNodeError, ensure_path
from braidlog.core.errors import FatalError
from braidlog.core.ids import id_text, random_id
from braidlog.core.types import BrokerId


async def prepare_store(store: CoordinationStore) -> None:
    """Create the paths that every broker expects; at most starts they are all there and this only reads."""
    wanted = list(dict.fromkeys(prefix for path in paths.PERSISTENT_PATHS for prefix in _prefixes(path)))
    found = await store.get_many(wanted)
    missing = [path for path, node in zip(wanted, found, strict=True) if node is None]
    if not missing:
        return
    try:
        await store.multi([Create(path) for path in missing])
    except NodeExistsError:  # another broker does the same right now
        for path in missing:
            await ensure_path(store, path)


def _prefixes(path: str) -> list[str]:
    """The path and its parents, outermost first."""
    names = path[1:].split("/")
    return ["/" + "/".join(names[:depth]) for depth in range(1, len(names) + 1)]


async def cluster_id(store: CoordinationStore, new_id: Callable[[], bytes] = random_id) -> str:
    """The id of the cluster behind this store, made up by the first broker that asks."""
    while True:
        try:
            node = await store.get(paths.CLUSTER_ID)
            return records.decode_cluster_id(paths.CLUSTER_ID, node.data)
        except NoNodeError:
            await ensure_path(store, paths.CLUSTER)
        try:
            await store.create(paths.CLUSTER_ID, records.encode_cluster_id(id_text(new_id())))
        except NodeExistsError:
            continue


async def generate_broker_id(store: CoordinationStore, reserved_max: int = 1000) -> BrokerId:
    """An id above `reserved.broker.max.id` that no other broker was ever given."""
    await ensure_path(store, paths.BROKER_SEQUENCE)
    stat = await store.set(paths.BROKER_SEQUENCE, b"")
    return BrokerId(reserved_max + stat.version)


async def last_broker_id(store: CoordinationStore, reserved_max: int = 1000) -> BrokerId | None:
    """The id that was generated last; none if there was none so far."""
    stat = await store.exists(paths.BROKER_SEQUENCE)
    return BrokerId(reserved_max + stat.version) if stat is not None and stat.version > 0 else None


async def register(store: CoordinationStore, broker_id: BrokerId, record: BrokerRecord) -> int:
    """Announce the broker for as long as this session lives; returns its epoch.

    Registering twice in one session is harmless. An id that another live session holds is a mistake of configuration.
    """
    path = paths.broker(broker_id)
    try:
        await store.create(path, records.encode_broker(record), ephemeral=True)
    except NodeExistsError:
        taken = await store.exists(path)
        if taken is not None and taken.ephemeral_owner != store.session_id:
            raise FatalError(
                f"broker id {broker_id} is registered by another broker that is alive: give this one its own "
                "broker.id, or wait for the other's session to end"
            ) from None
        await store.set(path, records.encode_broker(record))
    stat = await store.exists(path)
    if stat is None:
        raise FatalError(f"the registration of broker {broker_id} was removed at once; see who else uses the store")
    return stat.czxid


async def unregister(store: CoordinationStore, broker_id: BrokerId) -> None:
    try:
        await store.delete(paths.broker(broker_id))
    except NoNodeError:
        return
