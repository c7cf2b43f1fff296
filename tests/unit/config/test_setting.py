from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.config.rules import one_of
from braidlog.config.setting import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LOW,
    PASSWORD,
    SHORT,
    STRING,
    Setting,
    parse_list,
    to_text,
)
from braidlog.core.protocol_errors import InvalidConfigError


def setting(kind: int, **more: object) -> Setting:
    return Setting("some.key", kind, None, LOW, doc="Some.", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BOOLEAN, " True ", True),
        (INT, "+5", 5),
        (SHORT, "-32768", -32768),
        (LONG, "9223372036854775807", 2**63 - 1),
        (DOUBLE, "1.5d", 1.5),
        (DOUBLE, ".5", 0.5),
        (DOUBLE, "-Infinity", -math.inf),
        (LIST, " a , b,, ", ("a", "b", "", "")),
        (LIST, "", ()),
        (STRING, "\x01 x y \n", "x y"),
        (STRING, "\u00a0x", "\u00a0x"),
        (PASSWORD, " secret ", "secret"),
    ],
)
def test_texts_are_read_as_kafka_reads_them(kind: int, text: str, value: object) -> None:
    assert setting(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (BOOLEAN, "yes", "expected true or false"),
        (INT, "2147483648", "between -2147483648 and 2147483647"),
        (INT, "9" * 5000, "between"),
        (INT, "1_000", "expected a whole number"),
        (INT, "٣", "expected a whole number"),
        (SHORT, "32768", "a short lies between"),
        (DOUBLE, "1,5", "expected a number"),
        (DOUBLE, "nan", "expected a number"),
    ],
)
def test_a_refusal_says_what_is_allowed(kind: int, text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason) as refusal:
        setting(kind).parse(text)
    # Whatever is long is cut in the middle.
    assert str(refusal.value.message).startswith(f"Invalid value {text[:500]}")
    assert " for configuration some.key: " in str(refusal.value.message)


def test_a_refused_secret_is_not_repeated() -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        setting(PASSWORD, rule=one_of("x")).parse("hush")
    assert "hush" not in str(refusal.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (5, "5"),
        (0.5, "0.5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e-4, "1.0E-4"),
        (0.001, "0.001"),
        (12345678.0, "1.2345678E7"),
        (9999999.0, "9999999.0"),
        (-1.5e-10, "-1.5E-10"),
        (1234567890.5, "1.2345678905E9"),
        (0.0, "0.0"),
        (math.inf, "Infinity"),
        (("a", "b"), "a,b"),
        ((), ""),
    ],
)
def test_values_are_written_as_java_writes_them(value: bool | float | tuple[str, ...] | None, text: str | None) -> None:
    assert to_text(value) == text


@given(st.floats(allow_nan=False))
def test_doubles_survive_their_text(value: float) -> None:
    assert setting(DOUBLE).parse(to_text(value)) == value


@given(st.lists(st.text(alphabet="abc.-:", min_size=1), max_size=5))
def test_lists_survive_their_text(words: list[str]) -> None:
    assert parse_list(to_text(tuple(words)) or "") == tuple(words)
