from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.coordinator.group.consumer.patterns import Pattern


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("orders", ["orders"], ["order", "orders2", "xorders", ""]),
        ("orders.*", ["orders", "orders-eu"], ["my-orders"]),
        (r"orders\.eu", ["orders.eu"], ["orders-eu"]),
        ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
        ("(a|b)*c", ["c", "ababc"], ["abd"]),
        ("a{2,3}", ["aa", "aaa"], ["a", "aaaa"]),
        ("a{2}b{2,}", ["aabb", "aabbbb"], ["aab"]),
        ("a{,3}", [], ["a", "aa"]),
        ("a+?b*?c??", ["a", "aab", "abc"], ["b"]),
        ("[a-c_]+", ["abc_"], ["d", ""]),
        ("[^a-c]", ["d", "-"], ["a", ""]),
        ("[]a]", ["a"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"[\d.]+", ["1.2"], ["a"]),
        ("[[:alpha:]][[:^digit:]]", ["ab", "a-"], ["1b", "a1"]),
        (r"\d\w\S\D", ["1_aa"], ["a_aa", "1_a1"]),
        (r"\pL\p{Lu}\P{N}", ["aAa"], ["aaa", "aA1"]),
        ("^a$", ["a"], ["aa"]),
        (r"\Aa\z", ["a"], ["b"]),
        (r"\bfoo\b.*", ["foo", "foo-bar"], ["foobar"]),
        (r"a\Bb", ["ab"], ["a"]),
        ("(?i)oRders", ["ORDERS", "orders"], ["order"]),
        ("(?i:A)a", ["aa", "Aa"], ["aA"]),
        ("a(?i)b", ["aB", "ab"], ["AB"]),
        ("(?i)[a-c]+", ["aBC"], ["d"]),
        ("(?P<name>a)(?<other>b)(?:c)", ["abc"], ["ab"]),
        (r"\Qa.b*\E", [], ["aab"]),
        (r"\Qa.\Eb+", ["a.b", "a.bb"], ["aab"]),
        (r"\x61\x{62}\060?", ["ab", "ab0"], ["a"]),
        ("(a*)*", ["", "aaa"], ["b"]),
        ("(|a)+", ["", "aa"], ["b"]),
    ],
)
def test_matches_whole_names(text: str, yes: list[str], no: list[str]) -> None:
    pattern = Pattern(text)
    assert [name for name in yes if not pattern.matches(name)] == []
    assert [name for name in no if pattern.matches(name)] == []


def test_takes_no_longer_for_what_makes_others_backtrack() -> None:
    pattern = Pattern("(a+)+(a*)*b|(a|aa)+c")
    start = time.thread_time()
    assert not pattern.matches("a" * 249)
    assert time.thread_time() - start < 1.0


def test_stays_right_when_the_kept_steps_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braidlog.coordinator.group.consumer.patterns.MAX_STEPS", 3)
    pattern = Pattern("(ab|c)+")
    assert [name for name in ("ababc", "abab", "cc", "aba", "b") if pattern.matches(name)] == ["ababc", "abab", "cc"]


_LEAVES = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", "-", "_"])


def _combine(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = parts.map(lambda part: f"(?:{part})")
    return st.one_of(
        st.tuples(parts, parts).map("".join),
        st.tuples(parts, parts).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(group, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])).map("".join),
    )


@given(text=st.recursive(_LEAVES, _combine, max_leaves=6), name=st.text("ab1-_", max_size=8))
def test_agrees_with_python_where_both_know_the_syntax(text: str, name: str) -> None:
    assert Pattern(text).matches(name) == (re.fullmatch(text, name) is not None)
