"""Formats of keys and values: back and forth, and what is no such thing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.cli.records.byte_formats import FORMATS, BadRecord, bytes_of, from_json_value, json_value, shown
from braidlog.cli.records.json_format import JsonFormat


@given(st.sampled_from(("raw", "hex", "base64")), st.binary(max_size=50))
def test_what_is_shown_is_taken_back(form: str, data: bytes) -> None:
    assert bytes_of(form, "value")(shown(form)(data)) == data


@given(st.text(max_size=50))
def test_text_is_shown_as_it_is(text: str) -> None:
    encoded = text.encode()
    assert shown("text")(encoded) == encoded
    assert bytes_of("text", "value")(encoded) == encoded


@given(st.sampled_from(FORMATS), st.binary(max_size=50))
def test_anything_can_be_shown_and_as_a_document_on_one_line(form: str, data: bytes) -> None:
    line = shown(form)(data)
    if form == "json":
        json.loads(line)
        assert b"\n" not in line


@pytest.mark.parametrize("depth", [*range(900, 1010), 200_000])
def test_a_document_that_is_nested_too_deeply_is_text(depth: int) -> None:
    data = b"[" * depth + b"]" * depth
    assert shown("json")(data) in (data, b'"' + data + b'"')
    field = JsonFormat(value_format="json")._value
    assert field.decode is not None
    assert field.decode(data) in (b'{"json": ' + data + b"}", b'"' + data + b'"')


@pytest.mark.parametrize(
    ("form", "given_bytes", "reported"),
    [
        ("json", b"[" * 200_000, "the value is not JSON: it is nested too deeply"),
        ("text", b"a\xff", "the value is not UTF-8 text: invalid start byte at byte 1"),
        ("json", b"{", "the value is not JSON"),
        ("hex", b"abc", "the value is not hexadecimal"),
        ("hex", b"zz", "the value is not hexadecimal"),
        ("base64", b"a", "the value is not valid base64"),
    ],
)
def test_what_is_no_such_thing_is_told(form: str, given_bytes: bytes, reported: str) -> None:
    with pytest.raises(BadRecord, match=reported):
        bytes_of(form, "value")(given_bytes)


def test_shown_forms() -> None:
    assert shown("text")(b"a\xff") == b"a\\xff"
    assert shown("json")(b'{"b": 1,\n "a": "\xc3\xbc"}') == '{"b":1,"a":"ü"}'.encode()
    assert shown("json")(b"\xff") == b'{"base64":"/w=="}'
    assert shown("hex")(b"\x00\xff") == b"00ff"


@given(st.none() | st.binary(max_size=50), st.sampled_from(("raw", "hex", "base64")))
def test_values_of_json_objects_are_taken_back(data: bytes | None, form: str) -> None:
    value = json.loads(json.dumps(json_value(form)(data)))
    assert from_json_value(value, "value") == data
