from __future__ import annotations

import pytest

from braidlog.coordinator.group.consumer.pattern_syntax import (
    AT_END,
    AT_START,
    MAX_DEPTH,
    MAX_LENGTH,
    NAME_CHARACTERS,
    Alternatives,
    Assertion,
    Characters,
    Node,
    Repeat,
    Sequence,
    parse,
)
from braidlog.coordinator.group.consumer.patterns import Pattern
from braidlog.core.protocol_errors import InvalidRegularExpressionError


@pytest.mark.parametrize(
    "text",
    [
        r"(a)\1",
        r"(?P<n>a)(?P=n)",
        "(?=a)b",
        "(?!a)b",
        "(?<=a)b",
        "(?<!a)b",
        "(?>a)",
        "a++",
        "a**",
        "a{2}{3}*+",
        "*a",
        "(a",
        "a)",
        "[a",
        "[b-a]",
        "[[:nonsense:]]",
        r"\p{Greek}",
        r"\Z",
        "a\\",
        "a{1001}",
        "a{3,2}",
        "(?x)a",
        "((((a{100}){100}){100}){100})",
        "(((){1000}){1000}){1000}",
        "(" * 500 + ")" * 500,
        "a" * 5_000,
    ],
)
def test_refuses_what_re2_refuses(text: str) -> None:
    with pytest.raises(InvalidRegularExpressionError) as refused:
        Pattern(text)
    assert refused.value.code == 128


def only(text: str) -> Characters:
    return Characters(frozenset(text))


def simple(node: Node) -> Node:
    """Without sequences of one part."""
    if isinstance(node, Sequence | Alternatives):
        parts = tuple(simple(part) for part in node.parts)
        return parts[0] if len(parts) == 1 else type(node)(parts)
    return Repeat(simple(node.part), node.least, node.most) if isinstance(node, Repeat) else node


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", only("a")),
        (".", Characters(NAME_CHARACTERS)),
        (r"\d", only("0123456789")),
        ("[a-c_]", only("abc_")),
        (r"[^\w]", only(".-")),
        ("[[:punct:]]", only("._-")),
        ("(?i)ab", Sequence((only("aA"), only("bB")))),
        (r"\Q.*\E", Sequence((only("."), only("")))),
        ("^a$", Sequence((Assertion(AT_START), only("a"), Assertion(AT_END)))),
        ("a|b", Alternatives((only("a"), only("b")))),
        ("a*", Repeat(only("a"), 0, None)),
        ("a+?", Repeat(only("a"), 1, None)),
        ("a{2,5}", Repeat(only("a"), 2, 5)),
        (r"\x61", only("a")),
        ("(?:a)", only("a")),
    ],
)
def test_what_a_pattern_is_read_as(text: str, tree: object) -> None:
    assert simple(parse(text)) == tree


def test_other_names_bring_their_characters() -> None:
    assert simple(parse(".", frozenset("äö"))) == only("äö")
    assert simple(parse("[^ä]", frozenset("äö"))) == only("ö")


@pytest.mark.parametrize("text", ["a" * (MAX_LENGTH + 1), "(" * (MAX_DEPTH + 1) + ")" * (MAX_DEPTH + 1)])
def test_what_is_too_long_or_too_deep_is_refused(text: str) -> None:
    with pytest.raises(InvalidRegularExpressionError):
        parse(text)


def test_a_refusal_says_where() -> None:
    with pytest.raises(InvalidRegularExpressionError, match="at 2"):
        parse("ab)")
