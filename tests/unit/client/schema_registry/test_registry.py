"""The registry's client: what it asks, what it remembers, and what it says when it is refused."""

from __future__ import annotations

import json
import pickle
import socket
from pathlib import Path

import pytest

from braidlog.client.schema_registry.registry import Registry, RegistryError, UnknownSchema, with_references
from braidlog.core.errors import UserError
from support.certificates import Authority
from support.schema_registry import running_registry

USER = {"type": "record", "name": "User", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}


def test_schemas_are_registered_found_and_read() -> None:
    with running_registry() as running:
        registry = Registry(running.url + "/")
        number = registry.register("users-value", USER)
        assert registry.register("users-value", USER) == number
        assert registry.id_of("users-value", USER) == number
        assert registry.latest("users-value") == (number, "AVRO", USER)
        assert registry.schema_by_id(number).schema == USER
        newer = {**USER, "fields": [*USER["fields"], {"name": "name", "type": "string", "default": ""}]}
        assert registry.register("users-value", newer) != number
        assert registry.latest("users-value").schema == newer
        as_json = registry.register("users-json", {"type": "object", "properties": {}}, "JSON")
        assert registry.latest("users-json")[:2] == (as_json, "JSON")
        assert registry.register("odd name/%", "string") not in (number, as_json)
        assert registry.latest("odd name/%").schema == "string"


def test_a_schema_is_asked_for_once() -> None:
    with running_registry() as running:
        registry = Registry(running.url)
        number = registry.register("s", USER)
        for _ in range(3):
            registry.schema_by_id(number)
            with pytest.raises(UnknownSchema, match="schema id 99 is not in the registry"):
                registry.schema_by_id(99)
        assert running.contents.requests.count(f"GET /schemas/ids/{number}") == 1
        assert running.contents.requests.count("GET /schemas/ids/99") == 1


def test_unknown_subjects_and_schemas_are_told() -> None:
    with running_registry() as running:
        registry = Registry(running.url)
        with pytest.raises(UnknownSchema, match="Subject 'none' not found"):
            registry.latest("none")
        registry.register("s", USER)
        with pytest.raises(UnknownSchema, match="Schema not found"):
            registry.id_of("s", "string")


def test_references_are_put_in_place() -> None:
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "by", "type": "User"}, {"name": "to", "type": ["null", "shop.User"]}],
    }
    filled = {**order, "fields": [{"name": "by", "type": USER}, {"name": "to", "type": ["null", "shop.User"]}]}
    assert with_references(order, {"shop.User": USER}) == filled
    with running_registry() as running:
        registry = Registry(running.url)
        registry.register("user", USER)
        running.contents.schemas[9] = {
            "schema": json.dumps(order),
            "references": [{"name": "shop.User", "subject": "user", "version": 1}],
        }
        assert registry.schema_by_id(9).schema == filled


def test_passwords_are_sent_and_never_shown() -> None:
    with running_registry(user="ann", password="s3cret") as running:
        registry = Registry(running.url, user="ann", password="s3cret")
        assert registry.register("s", USER) == 1
        assert "s3cret" not in repr(registry)
        assert pickle.loads(pickle.dumps(registry)) == registry
        with pytest.raises(RegistryError, match="refuses access") as refused:
            Registry(running.url, user="ann", password="wr0ng").latest("s")
        assert "wr0ng" not in str(refused.value)
        assert running.contents.requests == ["POST /subjects/s/versions"]


def test_an_address_holds_no_password() -> None:
    for url in ("http://ann:s3cret@host", "ftp://host", "host:8081", ""):
        with pytest.raises(UserError) as refused:
            Registry(url)
        assert "s3cret" not in str(refused.value)
    with pytest.raises(UserError, match="go together"):
        Registry("http://host", user="ann")


def test_a_short_trouble_is_waited_out_and_a_long_one_is_told() -> None:
    with running_registry() as running:
        registry = Registry(running.url)
        running.contents.troubles += [(503, "{}"), (500, '{"message": "no leader"}')]
        assert registry.register("s", USER) == 1
        running.contents.troubles += [(500, '{"message": "no leader"}')] * 3
        with pytest.raises(RegistryError, match=r"does not answer at .*: HTTP 500: no leader"):
            registry.latest("s")


@pytest.mark.parametrize("body", ["<html>404</html>", '{"error_code": 404, "message": "HTTP 404 Not Found"}', "[]"])
def test_nothing_at_an_address_is_not_taken_for_no_such_schema(body: str) -> None:
    with running_registry() as running:
        number = Registry(running.url).register("s", USER)
        running.contents.troubles += [(404, body)] * 3
        with pytest.raises(RegistryError, match="HTTP 404 that is not a schema registry's") as refused:
            Registry(running.url).schema_by_id(number)
        assert not isinstance(refused.value, UnknownSchema)
        assert Registry(running.url).schema_by_id(number).schema == USER


def test_another_address_is_asked_when_one_is_down() -> None:
    with socket.socket() as unused, running_registry() as running:
        unused.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert Registry(f"{closed}, {running.url}").register("s", USER) == 1
        with pytest.raises(RegistryError, match=r"does not answer at http://127\.0\.0\.1"):
            Registry(closed).latest("s")


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (302, "http://elsewhere/", "redirects"),
        (409, '{"message": "x is gone"}', "not compatible with the subject's others: x is gone"),
        (422, '{"message": "Invalid schema"}', r"refuses GET .* \(422\): Invalid schema"),
        (200, "<html>", "does not answer as a schema registry does"),
        (200, "[]", "does not answer as a schema registry does"),
        (200, "{}", "is not readable as AVRO"),
        (400, "[]", r"\(400\)$"),
    ],
)
def test_refusals_are_told_in_words(status: int, body: str, message: str) -> None:
    with running_registry() as running:
        running.contents.troubles.append((status, body))
        with pytest.raises(RegistryError, match=message):
            Registry(running.url).latest("s")


def test_https_is_checked_against_the_given_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("registry", "127.0.0.1")
    with running_registry(tls=(server.certificate, server.key)) as running:
        registry = Registry(running.url, ca_file=authority.certificate)
        assert registry.register("s", USER) == 1
        with pytest.raises(RegistryError, match="certificate is not trusted"):
            Registry(running.url).latest("s")
    with pytest.raises(UserError, match="cannot read the registry's ca_file"):
        Registry("https://127.0.0.1:1", ca_file=tmp_path / "none.pem").latest("s")
