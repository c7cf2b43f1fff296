"""Patterns of topics: written for Java, meant as Spark's connector means them."""

from __future__ import annotations

import pytest

from braidlog import TopicPartition
from braidlog.core.errors import UserError
from pyspark_braidlog.source.topics import TopicFacts, compiled, topic_partitions


def matches(pattern: str, name: str) -> bool:
    return compiled(pattern).fullmatch(name) is not None


@pytest.mark.parametrize(
    ("pattern", "name", "meant"),
    [
        ("orders", "orders", True),
        # Any part of the name will do, as in the connector.
        ("orders", "old-orders-2", True),
        ("^orders$", "old-orders-2", False),
        ("^a|b$", "xb", True),
        ("^a|b$", "bx", False),
        ("orders.*", "order", False),
        (r"^\Qa.b\E$", "a.b", True),
        (r"^\Qa.b\E$", "axb", False),
        (r"^\Qa.b", "a.bc", True),
        (r"^\p{Lower}+\P{Digit}$", "abc-", True),
        (r"^\p{Lower}+\P{Digit}$", "abc1", False),
        (r"^[\p{Alpha}_]+$", "a_B", True),
        (r"^[\p{Alpha}_]+$", "a1", False),
        (r"^(?<name>a+)-\k<name>$", "aa-aa", True),
        (r"(?<!old-)orders", "old-orders", False),
        (r"(?<=new-)orders", "new-orders", True),
        ("(?i)ORDERS", "orders", True),
        ("(?ix) o r d e r s # a comment", "ORDERS", True),
        (r"a\z", "xa", True),
        (r"^\d+$", "123", True),
        (r"^\d+$", "١٢٣", False),
        (r"^a&&b$", "a&&b", True),
        (r"^[\]a]+$", "]a", True),
        ("a++b", "aab", True),
    ],
)
def test_java_expressions(pattern: str, name: str, meant: bool) -> None:
    assert matches(pattern, name) is meant


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(orders", "missing )"),
        ("[a-z&&[^b]]", "classes made of classes"),
        ("[a[bc]]", "classes made of classes"),
        (r"[\P{Alpha}]", "classes made of classes"),
        (r"\p{IsGreek}", "the class IsGreek"),
        ("(?U)a", "the flag U"),
        ("*", "nothing to repeat"),
        (")|(", "unbalanced"),
    ],
)
def test_what_cannot_be_used_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(UserError, match="option subscribePattern=") as raised:
        compiled(pattern)
    assert why in str(raised.value)


def test_partitions_in_order() -> None:
    facts = {"b": TopicFacts("", (0,)), "a": TopicFacts("", (0, 2))}
    assert topic_partitions(facts) == [TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 0)]
