"""Topics of a broker under test: made and deleted in one call each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.broker_errors import check
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from braidlog.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

_TIMEOUT_S: Final = 30.0


def create_topic(bootstrap: str, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    """Returns when every partition serves; raises the broker's error."""
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=int(_TIMEOUT_S * 1000))
    with ClusterConnection(bootstrap, _TIMEOUT_S) as cluster:
        (result,) = cluster.controller.call(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse).topics
    check(result.error_code, f"topic {name}", result.error_message)


def delete_topic(bootstrap: str, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=int(_TIMEOUT_S * 1000))
    with ClusterConnection(bootstrap, _TIMEOUT_S) as cluster:
        (result,) = cluster.controller.call(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse).responses
    check(result.error_code, f"topic {name}", result.error_message)
