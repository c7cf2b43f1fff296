from __future__ import annotations

import pytest

from braidlog.broker.handlers.cluster.config_access import check_configs
from braidlog.controller.requests import ResourceType
from braidlog.core.protocol_errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    ProtocolError,
    TopicAuthorizationFailedError,
)
from braidlog.security.acls import Acl, AclOperation
from support.authorized_broker import allow_cluster, allow_group, allow_topic, authorizer_of, exchange_of

SEE = AclOperation.DESCRIBE_CONFIGS


@pytest.mark.parametrize(
    ("kind", "rule", "refused"),
    [
        (ResourceType.TOPIC, allow_topic("mine", SEE), TopicAuthorizationFailedError),
        (ResourceType.GROUP, allow_group("mine", SEE), GroupAuthorizationFailedError),
        (ResourceType.BROKER, allow_cluster(SEE), ClusterAuthorizationFailedError),
        (ResourceType.BROKER_LOGGER, allow_cluster(SEE), ClusterAuthorizationFailedError),
        (ResourceType.CLIENT_METRICS, allow_cluster(SEE), ClusterAuthorizationFailedError),
    ],
)
def test_each_type_asks_for_a_right_of_its_own(kind: int, rule: Acl, refused: type[ProtocolError]) -> None:
    check_configs(authorizer_of(rule), exchange_of(), SEE, kind, "mine")
    with pytest.raises(refused):
        check_configs(authorizer_of(rule), exchange_of(), AclOperation.ALTER_CONFIGS, kind, "mine")
    with pytest.raises(refused):
        check_configs(authorizer_of(), exchange_of(), SEE, kind, "mine")


def test_an_unknown_type_is_left_to_who_knows_the_types() -> None:
    check_configs(authorizer_of(), exchange_of(), SEE, 99, "mine")
