"""Each request of the protocol is built by one module of the client, and goes out in one way."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import braidlog.client

CLIENT = Path(braidlog.client.__file__).parent
# Of a connection.
SENDING = {"call", "post", "post_with", "post_only"}
# What several clients need has one sender, whoever asks.
SENDERS = {
    "FIND_COORDINATOR": {"network/lookups.py"},
    "LIST_OFFSETS": {"network/lookups.py"},
    "FETCH": {"consumer/fetch/fetch_requests.py"},
    # Where brokers and leaders are. The others answer what a program asks an Admin, by the same request.
    "METADATA": {"metadata.py", "admin/topics.py", "admin/cluster_description.py"},
}


@cache
def calls() -> list[tuple[str, ast.Call]]:
    """Every call in the client, with its module."""
    return [
        (path.relative_to(CLIENT).as_posix(), node)
        for path in CLIENT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def callers(name: str) -> set[str]:
    return {module for module, node in calls() if called(node) == name}


def builders() -> dict[str, set[str]]:
    """By request the modules that call its class."""
    found: dict[str, set[str]] = {}
    for module, node in calls():
        name = called(node)
        if name.endswith("Request") and name[0].isupper() and name != "Request":
            found.setdefault(name, set()).add(module)
    return found


def senders() -> dict[str, set[str]]:
    """By API the modules that send its request on a connection."""
    found: dict[str, set[str]] = {}
    for module, node in calls():
        if (
            called(node) in ("call", "post", "post_with", "post_only")
            and node.args
            and isinstance(node.args[0], ast.Name)
        ):
            found.setdefault(node.args[0].id, set()).add(module)
    return found


def test_each_request_is_built_in_one_module() -> None:
    assert {name: modules for name, modules in builders().items() if len(modules) > 1} == {}


def test_shared_requests_are_built_in_their_package() -> None:
    assert builders()["MetadataRequest"] == {"requests/metadata.py"}
    assert builders()["InitProducerIdRequest"] == {"requests/init_producer_id.py"}
    assert builders()["CreateTopicsRequest"] == {"admin/topics.py"}


def test_what_several_clients_ask_for_is_sent_in_one_place() -> None:
    assert {api: senders()[api] for api in SENDERS} == SENDERS


def test_connections_are_opened_in_one_place() -> None:
    assert callers("PipelinedConnection") == set()
    assert callers("open_connection") == {"network/nodes.py"}
    assert callers("Nodes") == {"runtime.py"}
