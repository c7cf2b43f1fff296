"""Which topics a query reads: named, by a pattern, or partition by partition."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from braidlog import TopicPartition
from braidlog.core.errors import UserError


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics whose names the pattern matches, those of the cluster itself left out."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions and no others."""

    partitions: tuple[TopicPartition, ...]


ConsumerStrategy = Subscribe | SubscribePattern | Assign


class TopicFacts(NamedTuple):
    """What planning needs of a topic; `topic_id` is "" where the cluster has none."""

    topic_id: str
    partitions: tuple[int, ...]


def topic_partitions(facts: dict[str, TopicFacts]) -> list[TopicPartition]:
    """All of them, in order."""
    return [TopicPartition(topic, each) for topic in sorted(facts) for each in facts[topic].partitions]


# Java's names of the POSIX classes; they are ASCII there unless asked for otherwise.
_CLASSES: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "XDigit": "0-9a-fA-F",
}
_FLAGS: Final = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "u": re.NOFLAG}
_LEADING_FLAGS: Final = re.compile(r"\(\?([a-zA-Z]+)\)")
# A quotation, a named class, what a named group matched, the group, an intersection; else any escape or character.
_JAVA: Final = re.compile(r"\\Q(.*?)(?:\\E|$)|\\([pP])\{(\w+)\}|\\k<(\w+)>|\(\?<(?=[a-zA-Z])|&&|\\.|.", re.DOTALL)


def compiled(pattern: str) -> re.Pattern[str]:
    """A Java regular expression as Python has it; `fullmatch` of a topic's name tells whether it is meant.

    As in Spark's connector the expression may match any part of the name: anchors make it the whole.
    """
    flags = re.ASCII
    given = _LEADING_FLAGS.match(pattern)
    for letter in given[1] if given else "":
        if letter not in _FLAGS:
            raise _refused(pattern, f"the flag {letter} is not supported")
        flags |= _FLAGS[letter]
    inner = _translated(pattern, pattern[given.end() :] if given else pattern)
    try:
        re.compile(inner, flags)
        return re.compile(f".*?(?:{inner}\n).*" if flags & re.VERBOSE else f".*?(?:{inner}).*", flags)
    except re.error as problem:
        raise _refused(pattern, str(problem)) from None


def _translated(pattern: str, expression: str) -> str:
    written: list[str] = []
    in_class = False
    for token in _JAVA.finditer(expression):
        text = token[0]
        if token[1] is not None:
            text = re.escape(token[1])
        elif token[2] is not None:
            text = _class(pattern, token[2], token[3], in_class)
        elif token[4] is not None:
            text = f"(?P={token[4]})"
        elif text == "(?<":
            text = "(?P<"
        elif text == r"\z":
            text = r"\Z"
        elif in_class and text in ("&&", "["):
            raise _refused(pattern, "classes made of classes are not supported")
        elif text == "[":
            in_class = True
        elif text == "]":
            in_class = False
        written.append(text)
    return "".join(written)


def _class(pattern: str, kind: str, name: str, in_class: bool) -> str:
    if name not in _CLASSES:
        raise _refused(pattern, f"the class {name} is not supported")
    if in_class:
        if kind == "P":
            raise _refused(pattern, "classes made of classes are not supported")
        return _CLASSES[name]
    return f"[{'^' if kind == 'P' else ''}{_CLASSES[name]}]"


def _refused(pattern: str, why: str) -> UserError:
    return UserError(f"option subscribePattern={pattern!r} is no regular expression that can be used: {why}")
