"""Topics of a broker under test: made and deleted in one call each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from braidlog.client.admin.admin import admin_over
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.admin.topics import NewTopic

_TIMEOUT_S: Final = 30.0


def create_topic(bootstrap: str, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    """Returns when every partition serves; raises the broker's error."""
    with ClusterConnection(bootstrap, _TIMEOUT_S) as cluster:
        admin_over(cluster).create_topics([NewTopic(name, partitions, 1, configs)]).raise_for_errors()


def delete_topic(bootstrap: str, name: str) -> None:
    with ClusterConnection(bootstrap, _TIMEOUT_S) as cluster:
        admin_over(cluster).delete_topics([name]).raise_for_errors()
