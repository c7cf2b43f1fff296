from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.cli.zookeeper_session import StoredUsers, zookeeper_session, zookeeper_settings
from braidlog.cluster.store import CoordinationStore
from braidlog.core.errors import UserError


async def unused(store: CoordinationStore) -> None:
    raise AssertionError("there is no session")


def test_a_place_that_is_none_is_named_before_anything_is_connected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="names no server"):
        zookeeper_session("/kafka", zookeeper_settings(None), unused)
    with pytest.raises(UserError, match="is not a server"):
        StoredUsers("host:port", None).mechanisms_of("alice")
    config = tmp_path / "server.properties"
    config.write_text("zookeeper.set.acl=true\n")
    with pytest.raises(UserError, match=r"zookeeper\.set\.acl=true protects nodes"):
        zookeeper_session("127.0.0.1:1", zookeeper_settings(str(config)), unused)
