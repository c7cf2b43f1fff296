"""The syntax of sasl.jaas.config."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.errors import UserError
from braidlog.security.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        (f'{PLAIN} required username="alice" password="secret";', "PlainLoginModule",
            {"username": "alice", "password": "secret"}),
        ("org.apache.kafka.common.security.scram.ScramLoginModule\n  REQUIRED\n username='a' password='b c'\n;",
            "ScramLoginModule", {"username": "a", "password": "b c"}),
        (f"{PLAIN} required username = alice password=s3cret-_$ ;", "PlainLoginModule",
            {"username": "alice", "password": "s3cret-_$"}),
        (f'{PLAIN} required // who\n username="a" /* what\n else */ password="x//y";', "PlainLoginModule",
            {"username": "a", "password": "x//y"}),
        (f'{PLAIN} required username="=" password=";";', "PlainLoginModule", {"username": "=", "password": ";"}),
        (f'{PLAIN} required password="a\\"b\\\\c\\n\\101";', "PlainLoginModule", {"password": 'a"b\\c\nA'}),
        ("OAuthBearerLoginModule required;", "OAuthBearerLoginModule", {}),
    ],
)  # fmt: skip
def test_what_property_files_hold(text: str, name: str, options: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert (module.name, module.options) == (name, options)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "empty"),
        (";", "login module has to be"),
        (f'{PLAIN} required username="alice"', "semicolon"),
        ("com.example.OtherLoginModule required;", "PlainLoginModule, ScramLoginModule"),
        (f'{PLAIN} username="alice" password="s3cret";', "required, requisite"),
        (f"{PLAIN} required username;", "option 1 has no value"),
        (f'{PLAIN} required username="a" password=;', "option 2 has no value"),
        (f'{PLAIN} required ="s3cret";', "no option before"),
        (f'{PLAIN} required password="s3cret;', "quote is not closed"),
        (f"{PLAIN} required; {PLAIN} required;", "several"),
    ],
)
def test_what_is_wrong_is_told_without_the_secret(text: str, reported: str) -> None:
    with pytest.raises(UserError, match=reported) as caught:
        parse_jaas(text)
    assert "s3cret" not in str(caught.value)
    assert str(caught.value).startswith("sasl.jaas.config: ")


@given(st.text(st.characters(exclude_characters="\n", exclude_categories=("Cs",))))
def test_any_value_can_be_quoted(value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'{PLAIN} required password="{quoted}";').options == {"password": value}


def test_a_module_shows_names_alone() -> None:
    assert "s3cret" not in repr(parse_jaas(f'{PLAIN} required password="s3cret";'))


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    with contextlib.suppress(UserError):
        parse_jaas(text)
