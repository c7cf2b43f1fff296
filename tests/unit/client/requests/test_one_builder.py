"""Each request of the protocol is built by one module of the client."""

from __future__ import annotations

import ast
from pathlib import Path

import braidlog.client

CLIENT = Path(braidlog.client.__file__).parent
# Still built beside their module of `client/requests`; this list only shrinks.
SEVERAL_BUILDERS = {"FetchRequest", "InitProducerIdRequest"}


def builders() -> dict[str, set[str]]:
    """By request the modules that call its class."""
    found: dict[str, set[str]] = {}
    for path in CLIENT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = node.func
                name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                if name.endswith("Request") and name[0].isupper() and name != "Request":
                    found.setdefault(name, set()).add(str(path.relative_to(CLIENT)))
    return found


def test_each_request_is_built_in_one_module() -> None:
    several = {name: modules for name, modules in builders().items() if len(modules) > 1}
    assert not set(several) - SEVERAL_BUILDERS, several


def test_shared_requests_are_built_in_their_package() -> None:
    assert "requests/metadata.py" in builders()["MetadataRequest"]
    assert builders()["CreateTopicsRequest"] == {"admin/topics.py"}
