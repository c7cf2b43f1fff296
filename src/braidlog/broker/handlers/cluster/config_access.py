"""Who may see and change settings: those of a topic or group with a right to it, all others with one to the cluster."""

from __future__ import annotations

from typing import Final

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.controller.requests import ResourceType
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation, AclResourceType

_OF_ITS_OWN: Final[dict[int, AclResourceType]] = {
    ResourceType.TOPIC: AclResourceType.TOPIC,
    ResourceType.GROUP: AclResourceType.GROUP,
}
_OF_THE_CLUSTER: Final = (ResourceType.BROKER, ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS)


def check_configs(
    authorizer: Authorizer, exchange: Exchange, operation: AclOperation, resource_type: int, name: str
) -> None:
    """Raises the error that its type of resource has. What is of an unknown type has no settings, whoever asks."""
    own = _OF_ITS_OWN.get(resource_type)
    if own is not None:
        authorizer.check(exchange, operation, own, name)
    elif resource_type in _OF_THE_CLUSTER:
        authorizer.check_cluster(exchange, operation)
