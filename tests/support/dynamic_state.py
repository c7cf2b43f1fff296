"""What a broker knows of what is changed at run time: each broker hears of it by itself, one sooner than another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from braidlog.wire.generated.describe_client_quotas import DescribeClientQuotasRequest
from braidlog.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from braidlog.wire.generated.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from support.acl_requests import describe
from support.raw import RawConnection

_TOPIC: Final = 2
_BROKER: Final = 4
# Where a value comes from: an override of the topic, or one of all brokers. That of one broker is its own.
_OVERRIDDEN: Final = {_TOPIC: 1, _BROKER: 3}


def dynamic_state(port: int, topics: Iterable[str]) -> dict[str, Any]:
    """The overrides of topics and of all brokers, quotas, SCRAM users and rules of access, in comparable form."""
    named = [
        DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=None) for topic in topics
    ]
    all_brokers = DescribeConfigsResource(resource_type=_BROKER, resource_name="", configuration_keys=None)
    with RawConnection(port) as raw:
        configs: Any = raw.ask("DescribeConfigs", 4, DescribeConfigsRequest(resources=[*named, all_brokers]))
        quotas: Any = raw.ask("DescribeClientQuotas", 1, DescribeClientQuotasRequest())
        users: Any = raw.ask("DescribeUserScramCredentials", 0, DescribeUserScramCredentialsRequest(users=None))
        acls = describe(raw)
    return {
        "configs": {
            (each.resource_name, config.name): config.value
            for each in configs.results
            for config in each.configs
            if config.config_source == _OVERRIDDEN[each.resource_type]
        },
        "quotas": {
            (frozenset((part.entity_type, part.entity_name) for part in entry.entity), value.key): value.value
            for entry in quotas.entries
            for value in entry.values
        },
        "users": {
            (user.user, info.mechanism): info.iterations for user in users.results for info in user.credential_infos
        },
        "acls": acls,
    }
