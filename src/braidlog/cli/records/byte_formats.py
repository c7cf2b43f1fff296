"""Bytes of keys and values as people and scripts write them.

raw      byte for byte                         text     UTF-8; what is not shows as \\xNN
hex      two digits a byte                     base64   as in RFC 4648
json     a JSON document, checked; printed on one line
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, Final

FORMATS: Final = ("raw", "text", "json", "hex", "base64")


class BadRecord(ValueError):
    """The line is not a record; the text says why."""


def document_of(data: bytes) -> Any:
    """What JSON says; ValueError where it is none, or none that can be read here."""
    try:
        return json.loads(data)
    except RecursionError as problem:
        # Anybody can write a record of brackets alone.
        raise ValueError("it is nested too deeply") from problem


def as_it_is(data: bytes) -> bytes:
    return data


def bytes_of(form: str, what: str) -> Callable[[bytes], bytes]:
    """From what stands in a line to the bytes that are meant; raises BadRecord, naming `what`."""

    def text(given: bytes) -> bytes:
        try:
            given.decode("utf-8")
        except UnicodeDecodeError as problem:
            raise BadRecord(f"the {what} is not UTF-8 text: {problem.reason} at byte {problem.start}") from problem
        return given

    def document(given: bytes) -> bytes:
        try:
            document_of(given)
        except ValueError as problem:
            raise BadRecord(f"the {what} is not JSON: {problem}") from problem
        return given

    def from_hex(given: bytes) -> bytes:
        try:
            return bytes.fromhex(given.decode("ascii"))
        except ValueError as problem:
            raise BadRecord(f"the {what} is not hexadecimal: two digits a byte, 0-9 a-f") from problem

    def from_base64(given: bytes) -> bytes:
        try:
            return base64.b64decode(given, validate=True)
        except (binascii.Error, ValueError) as problem:
            raise BadRecord(f"the {what} is not valid base64") from problem

    ways: dict[str, Callable[[bytes], bytes]] = {
        "raw": as_it_is, "text": text, "json": document, "hex": from_hex, "base64": from_base64
    }  # fmt: skip
    return ways[form]


def shown(form: str) -> Callable[[bytes], bytes]:
    """From bytes to what is printed of them."""
    ways: dict[str, Callable[[bytes], bytes]] = {
        "raw": as_it_is, "text": _as_text, "json": _as_document, "hex": _as_hex, "base64": base64.b64encode
    }  # fmt: skip
    return ways[form]


def _as_text(data: bytes) -> bytes:
    return data.decode("utf-8", "backslashreplace").encode("utf-8")


def _as_hex(data: bytes) -> bytes:
    return data.hex().encode("ascii")


def _as_document(data: bytes) -> bytes:
    """What is not JSON stands as it does in JSON output: text, or base64."""
    try:
        return _compact(document_of(data))
    except (ValueError, RecursionError):
        return _compact(plain_json(data))


def _compact(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


# Within a JSON object


def plain_json(data: bytes) -> Any:
    """Text where it is text, else {"base64": "…"}."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def json_value(form: str) -> Callable[[bytes | None], Any]:
    """How a key or value stands in an object of `consume --output json`; null is null in each."""

    def of(data: bytes | None) -> Any:
        if data is None:
            return None
        if form == "hex":
            return {"hex": data.hex()}
        if form == "base64":
            return {"base64": base64.b64encode(data).decode("ascii")}
        if form == "text":
            return data.decode("utf-8", "backslashreplace")
        if form == "json":
            try:
                return {"json": document_of(data)}
            except ValueError:
                return plain_json(data)
        return plain_json(data)

    return of


def from_json_value(value: Any, what: str) -> bytes | None:
    """What `json_value` made, back; raises BadRecord."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError as problem:
            raise BadRecord(f"{what} has half of a surrogate pair; write it as base64") from problem
    if isinstance(value, dict) and len(value) == 1:
        ((form, content),) = value.items()
        if form == "json":
            return _compact(content)
        if form in ("base64", "hex") and isinstance(content, str):
            return bytes_of(form, what)(content.encode("utf-8", "surrogatepass"))
    raise BadRecord(f'{what} must be text, null, {{"base64": "…"}}, {{"hex": "…"}} or {{"json": …}}')
