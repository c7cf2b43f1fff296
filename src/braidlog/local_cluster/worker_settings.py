"""What each worker is told beside the settings that all of them share: its ports, directories, id and store.

    listeners, advertised.listeners, braidlog.http.listen     the ports as given for worker 0, then one more for each
    log.dirs                                                  worker-N in each of the data directories
    broker.id                                                 0, 1, … on an own store; broker.id + N where it is set
    braidlog.host                                             the machine's name
    braidlog.memory.max                                       its share

Internal topics have three replicas unless told otherwise; on an own store, with fewer workers, as many as those are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from braidlog.config.broker import BrokerSettings
from braidlog.config.listeners import parse_listeners
from braidlog.core.errors import UserError
from braidlog.core.types import Endpoint
from braidlog.local_cluster.local_cluster import replication_settings

_LAST_PORT: Final = 65_535
_HTTP: Final = "braidlog.http.listen"
_STORE_DIR: Final = "braidlog.store.dir"
_OF_ALL_TOPICS: Final = ("default.replication.factor", "min.insync.replicas")


class WorkerPlace(NamedTuple):
    """What a worker has of its own that is not counted up from the settings."""

    worker: int
    data_paths: Sequence[str]
    broker_id: int | None
    # None where they are in a cluster on ZooKeeper.
    store_socket: str | None


def check_workers(settings: BrokerSettings, workers: int) -> None:
    """Raises UserError where so many workers cannot have these settings."""
    listeners = parse_listeners(settings)
    taken: dict[int, tuple[str, int]] = {}
    ports = [(f"listener {each.listener}", each.port) for each in listeners.bound]
    ports.append((_HTTP, _http_port(settings)))
    for name, first in ports:
        for worker in range(workers) if first else ():
            port = first + worker
            if port > _LAST_PORT:
                raise UserError(f"{name}: {workers} workers from port {first} on would end above {_LAST_PORT}")
            if port in taken:
                other, of_worker = taken[port]
                raise UserError(
                    f"{name} of worker {worker} and {other} of worker {of_worker} would both have port {port}: put "
                    f"their first ports at least {workers} apart"
                )
            taken[port] = (name, worker)
    if settings.is_set(_STORE_DIR):
        raise UserError(f"{_STORE_DIR} is for a broker alone: workers keep their store in the first data directory")
    if settings.get_str("braidlog.store.socket"):
        raise UserError("braidlog.store.socket is what --workers sets for its workers: leave it out")


def with_lasting_ports(settings: BrokerSettings, first_free: Callable[[], int]) -> BrokerSettings:
    """Where any free port will do, one that a worker finds again when it is started again."""
    bound = parse_listeners(settings).bound
    if all(each.port for each in bound):
        return settings
    chosen = [each if each.port else each._replace(port=first_free()) for each in bound]
    return BrokerSettings({**settings.static, "listeners": ",".join(map(str, chosen))})


def _http_port(settings: BrokerSettings) -> int:
    return int(settings.get_str(_HTTP).rpartition(":")[2] or 0)


def first_broker_id(settings: BrokerSettings, *, own_store: bool) -> int | None:
    """None where ZooKeeper generates ids."""
    if settings.broker_id >= 0:
        return settings.broker_id
    return 0 if own_store else None


def worker_settings(
    settings: BrokerSettings, place: WorkerPlace, workers: int, host: str, memory_max: int, *, http_is_free: bool
) -> dict[str, str]:
    """`http_is_free` says of a port that nobody has asked for whether it can be had."""
    worker = place.worker
    listeners = parse_listeners(settings)
    texts = {
        "listeners": _endpoints(listeners.bound, worker),
        "log.dirs": ",".join(place.data_paths),
    }
    if settings.is_set("advertised.listeners"):
        texts["advertised.listeners"] = _endpoints(listeners.advertised, worker)
    if place.broker_id is not None:
        texts |= {"broker.id": str(place.broker_id), "node.id": str(place.broker_id)}
    http_host, _, http_port = settings.get_str(_HTTP).rpartition(":")
    if http_port and (http_is_free or settings.is_set(_HTTP)):
        texts[_HTTP] = f"{http_host}:{_counted(int(http_port), worker)}"
    else:
        texts[_HTTP] = ""
    if not settings.get_str("braidlog.host"):
        texts["braidlog.host"] = host
    if not settings.get_int("braidlog.memory.max"):
        texts["braidlog.memory.max"] = str(memory_max)
    if place.store_socket is not None:
        texts["braidlog.store.socket"] = place.store_socket
        for key, value in replication_settings(workers).items():
            if key not in _OF_ALL_TOPICS and not settings.is_set(key):
                texts[key] = value
    return texts


def http_port_of(settings: BrokerSettings, worker: int) -> int:
    """Where this worker's metrics are; 0 for none or any."""
    return _counted(_http_port(settings), worker)


def _counted(port: int, worker: int) -> int:
    """Port 0 asks for any free one."""
    return port + worker if port else 0


def _endpoints(endpoints: Sequence[Endpoint], worker: int) -> str:
    return ",".join(str(each._replace(port=_counted(each.port, worker))) for each in endpoints)
