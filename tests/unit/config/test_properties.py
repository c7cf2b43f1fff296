from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.config.properties import PropertiesError, Property, parse_properties

# Text -> what java.util.Properties made of it; null where it threw.
RECORDED: list[tuple[str, dict[str, str] | None]] = json.loads(
    (Path(__file__).parent / "kafka39" / "properties.json").read_text()
)


@pytest.mark.parametrize(("text", "expected"), RECORDED, ids=[repr(case[0]) for case in RECORDED])
def test_text_is_read_as_java_reads_it(text: str, expected: dict[str, str] | None) -> None:
    if expected is None:
        with pytest.raises(PropertiesError):
            parse_properties(text)
    else:
        assert {pair.key: pair.value for pair in parse_properties(text)} == expected


def test_lines_are_numbered_by_where_the_pair_begins() -> None:
    text = "# one\n\na=1\\\n  2\nb: 3\r\nc 4"
    assert parse_properties(text) == [Property("a", "12", 3), Property("b", "3", 5), Property("c", "4", 6)]


def test_a_broken_escape_is_told_with_its_line() -> None:
    with pytest.raises(PropertiesError, match=r"four hexadecimal digits") as problem:
        parse_properties("a=1\nb=\\u12")
    assert problem.value.line == 2


def escaped(text: str, *, key: bool) -> str:
    special = "\\ =:#!\t\f" if key else "\\ \t\f"
    out = "".join("\\" + {"\t": "t", "\f": "f"}.get(c, c) if c in special else c for c in text)
    return out.replace("\n", "\\n").replace("\r", "\\r")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_escaped_comes_back(pairs: dict[str, str]) -> None:
    usable = {k: v for k, v in pairs.items() if not _has_surrogates(k + v)}
    text = "\n".join(f"{escaped(key, key=True)}={escaped(value, key=False)}" for key, value in usable.items())
    assert {pair.key: pair.value for pair in parse_properties(text)} == usable


def _has_surrogates(text: str) -> bool:
    return any(0xD800 <= ord(c) <= 0xDFFF for c in text)


@given(st.text(alphabet="ab=: \t\f\\\n\r#!u0"))
def test_any_text_is_read_or_refused_with_a_line_it_has(text: str) -> None:
    lines = text.count("\n") + text.count("\r") + 1
    try:
        named = [pair.line for pair in parse_properties(text)]
    except PropertiesError as problem:
        named = [problem.line]
    assert all(1 <= line <= lines for line in named)
