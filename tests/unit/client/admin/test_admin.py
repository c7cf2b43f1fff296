"""The face: settings, names that are found lazily, and that it is closed."""

from __future__ import annotations

import socket
import time

import pytest

from braidlog.client import admin as package
from braidlog.client.admin import Admin
from braidlog.client.errors import ClosedError, NoConnection, SettingError
from braidlog.core.errors import UserError


def test_every_public_name_is_where_it_is_said_to_be() -> None:
    for name in package.__all__:
        assert getattr(package, name).__class__ is not None
    assert set(package._MODULE_OF) == set(package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nobody'"):
        package.Nobody  # noqa: B018


def test_settings_are_checked_and_nothing_is_connected() -> None:
    with pytest.raises(UserError, match="bootstrap_servers"):
        Admin()
    with pytest.raises(SettingError):
        Admin(bootstrap_servers="a:1", request_timeout_ms="soon")
    with Admin({"bootstrap.servers": "nowhere.invalid:1"}, retry_backoff_ms=1) as admin:
        assert admin.within(2.0) is not admin
    with pytest.raises(ClosedError, match="make a new one"):
        admin.list_topics()


def test_a_cluster_that_is_not_there_is_told_of_in_time() -> None:
    with Admin(bootstrap_servers="127.0.0.1:1", default_api_timeout=0.2) as admin:
        with pytest.raises(NoConnection, match=r"bootstrap\.servers"):
            admin.create_topics(["a"])
        with pytest.raises(NoConnection):
            admin.within(0.05).describe_cluster()


def test_a_broker_that_says_nothing_is_not_waited_for_beyond_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with Admin(bootstrap_servers=f"127.0.0.1:{port}") as admin:
            before = time.monotonic()
            with pytest.raises(NoConnection, match=r"did not answer within the 0\.[123] s"):
                admin.within(0.3).list_topics()
            # A request of its own has 30 s, a call 60 s.
            assert time.monotonic() - before < 25.0
