"""The table of handlers: each api once, for the request that its key stands for, imported when first asked for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, get_args, get_type_hints
from unittest.mock import MagicMock

import pytest

from braidlog.broker.requests.routes import INTER_BROKER, RESPONDING, RETURNING
from braidlog.wire.apis import APIS
from braidlog.wire.generated.api_keys import ApiKey

FACTORIES: dict[ApiKey, Callable[[Any], Any]] = {**RETURNING, **RESPONDING, **INTER_BROKER}
# The broker makes these two; compiled, they have no annotations that could be looked at.
COMPILED = {ApiKey.PRODUCE, ApiKey.FETCH}
EAGER = {*COMPILED, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.API_VERSIONS}


def made(key: ApiKey) -> type:
    handler: type = type(FACTORIES[key](MagicMock()))
    return handler


def test_no_api_is_served_twice() -> None:
    assert len(FACTORIES) == len(RETURNING) + len(RESPONDING) + len(INTER_BROKER)


@pytest.mark.parametrize("key", sorted(FACTORIES.keys() - COMPILED), ids=lambda key: key.name)
def test_a_handler_takes_the_request_of_its_key(key: ApiKey) -> None:
    handler: Any = made(key)
    request = APIS[key].request
    assert get_type_hints(handler.handle)["request"] is request
    taken = get_type_hints(handler.error_response)["request"]
    assert taken is request or request in get_args(taken)


def test_a_broker_starts_without_handlers_that_clients_rarely_ask_for() -> None:
    lazy = {made(key).__module__ for key in FACTORIES if key not in EAGER}
    program = "import sys, braidlog.broker.broker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert lazy & set(done.stdout.split()) == set()


def test_a_lone_broker_starts_without_what_only_a_cluster_needs() -> None:
    program = "import sys, braidlog.broker.server; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    for name in (
        "braidlog.broker.deleted_topics", "braidlog.broker.interbroker", "braidlog.cluster.control_wire",
        "braidlog.cluster.zookeeper", "braidlog.controller.alter_partition",
        "braidlog.net.outbound.pipelined_connection", "kazoo",
    ):  # fmt: skip
        assert not [each for each in modules if each == name or each.startswith(f"{name}.")]
    # Nor what only a change of overrides needs.
    assert "braidlog.controller.configs" not in modules
