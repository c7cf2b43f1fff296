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


Choice = Subscribe | SubscribePattern | Assign


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
# A quotation, an escape with a class, a named group, an intersection of classes; else any escape or character.
_JAVA: Final = re.compile(r"\\Q(.*?)(?:\\E|$)|\\([pP])\{(\w+)\}|\(\?<(?=[a-zA-Z])|&&|\\z|\\.|.", re.DOTALL)


def compiled(pattern: str) -> re.Pattern[str]:
    """A Java regular expression as Python has it."""
    written: list[str] = []
    in_class = False
    for token in _JAVA.finditer(pattern):
        text = token[0]
        if token[1] is not None:
            text = re.escape(token[1])
        elif token[2] is not None:
            text = _class(pattern, token[2], token[3], in_class)
        elif text == "(?<":
            text = "(?P<"
        elif text == r"\z":
            text = r"\Z"
        elif text == "&&" and in_class:
            raise _refused(pattern, "classes with && are not supported")
        elif text == "[":
            if in_class:
                raise _refused(pattern, "classes within classes are not supported")
            in_class = True
        elif text == "]":
            in_class = False
        written.append(text)
    try:
        return re.compile("".join(written), re.ASCII)
    except re.error as problem:
        raise _refused(pattern, str(problem)) from None


def _class(pattern: str, kind: str, name: str, in_class: bool) -> str:
    if name not in _CLASSES:
        raise _refused(pattern, f"the class {name} is not supported")
    if in_class:
        if kind == "P":
            raise _refused(pattern, "classes within classes are not supported")
        return _CLASSES[name]
    return f"[{'^' if kind == 'P' else ''}{_CLASSES[name]}]"


def _refused(pattern: str, why: str) -> UserError:
    return UserError(f"option subscribePattern={pattern!r} is no regular expression that can be used: {why}")
