"""Reads RE2's syntax into a tree, for names of topics: a class of characters is the set of those a name may have.

Other names than those of topics bring the characters that they may have along.

Refused as RE2 refuses them: back-references, look-arounds, atomic groups, possessive repeats, repeats of repeats, more
than 1,000 repeats. Refused though RE2 takes them: Unicode scripts (`\\p{Greek}`; categories are fine), `\\C`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from braidlog.core.protocol_errors import InvalidRegularExpressionError

NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
MAX_LENGTH: Final = 4_096
MAX_REPEATS: Final = 1_000
MAX_DEPTH: Final = 200

AT_START: Final = 0
AT_END: Final = 1
BOUNDARY: Final = 2
NO_BOUNDARY: Final = 3


@dataclass(frozen=True, slots=True)
class Characters:
    accepted: frozenset[str]


@dataclass(frozen=True, slots=True)
class Assertion:
    kind: int


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Node
    least: int
    # None for any number.
    most: int | None


Node = Characters | Assertion | Sequence | Alternatives | Repeat

_CLASSES: Final[dict[str, Callable[[str], bool]]] = {
    "d": lambda c: c in "0123456789",
    "w": lambda c: c.isalnum() or c == "_",
    "s": lambda c: c in "\t\n\f\r ",
}
_POSIX: Final[dict[str, Callable[[str], bool]]] = {
    "alnum": str.isalnum,
    "alpha": str.isalpha,
    "ascii": str.isascii,
    "blank": lambda c: c in "\t ",
    "cntrl": lambda c: False,
    "digit": str.isdigit,
    "graph": lambda c: True,
    "lower": str.islower,
    "print": lambda c: True,
    "punct": lambda c: c in "._-",
    "space": str.isspace,
    "upper": str.isupper,
    "word": lambda c: c.isalnum() or c == "_",
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}
_CONTROLS: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_ASSERTIONS: Final = {"A": AT_START, "z": AT_END, "b": BOUNDARY, "B": NO_BOUNDARY}


def parse(text: str, alphabet: frozenset[str] = NAME_CHARACTERS) -> Node:
    if len(text) > MAX_LENGTH:
        raise InvalidRegularExpressionError(f"the regular expression is longer than {MAX_LENGTH} characters")
    return _Parser(text, alphabet).whole()


class _Parser:
    def __init__(self, text: str, alphabet: frozenset[str]) -> None:
        self._text = text
        self._any = alphabet
        self._at = 0
        self._depth = 0
        self._ignore_case = False

    def whole(self) -> Node:
        node = self._alternatives()
        if self._at < len(self._text):
            raise self._wrong("a ')' too many")
        return node

    def _where(self, accepts: Callable[[str], bool], negated: bool = False) -> frozenset[str]:
        return frozenset(c for c in self._any if accepts(c) != negated)

    def _wrong(self, what: str) -> InvalidRegularExpressionError:
        return InvalidRegularExpressionError(f"the regular expression has {what} at {self._at}")

    def _peek(self, ahead: int = 1) -> str:
        return self._text[self._at : self._at + ahead]

    def _take(self, what: str = "") -> str:
        if self._at >= len(self._text):
            raise self._wrong("no end")
        if what and not self._text.startswith(what, self._at):
            raise self._wrong(f"no {what!r}")
        taken = what or self._text[self._at]
        self._at += len(taken)
        return taken

    def _until(self, end: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            raise self._wrong(f"no {end!r}")
        taken = self._text[self._at : found]
        self._at = found + len(end)
        return taken

    def _alternatives(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong("too many groups within each other")
        parts = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            parts.append(self._sequence())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._peek() not in "|)":
            if self._peek(2) == "\\Q":
                parts += self._quoted()
                if not parts or self._peek() not in "*+?{":
                    continue
                parts.append(self._repeated(parts.pop()))
                continue
            node = self._one()
            if node is not None:
                parts.append(self._repeated(node))
        return Sequence(tuple(parts))

    def _quoted(self) -> list[Node]:
        self._at += 2
        end = self._text.find("\\E", self._at)
        stop = len(self._text) if end < 0 else end
        literal = self._text[self._at : stop]
        self._at = stop if end < 0 else stop + 2
        return [self._literal(character) for character in literal]

    def _literal(self, character: str) -> Characters:
        accepted = {character}
        if self._ignore_case:
            accepted |= {character.lower(), character.upper()}
        return Characters(frozenset(accepted) & self._any)

    def _one(self) -> Node | None:
        """One thing that can be repeated; None where only flags were set."""
        character = self._take()
        if character == "(":
            return self._group()
        if character == "[":
            return Characters(self._class())
        if character == ".":
            return Characters(self._any)
        if character in "^$":
            return Assertion(AT_START if character == "^" else AT_END)
        if character in "*+?":
            self._at -= 1
            raise self._wrong("nothing to repeat")
        if character == "\\":
            return self._escape()
        return self._literal(character)

    def _group(self) -> Node | None:
        before = self._ignore_case
        if self._peek() == "?":
            self._at += 1
            if self._peek(2) == "P<" or (self._peek() == "<" and self._peek(2) not in ("<=", "<!")):
                self._at += 2 if self._peek() == "P" else 1
                name = self._until(">")
                if not name or not name.replace("_", "a").isalnum():
                    raise self._wrong("a group without a proper name")
            elif not self._flags():
                return None
        node = self._alternatives()
        self._take(")")
        self._ignore_case = before
        return node

    def _flags(self) -> bool:
        """`i`, `m`, `s`, `U`, and off after a `-`; whether a group follows them. Lines do not occur in names."""
        on = True
        while True:
            flag = self._take()
            if flag == "i":
                self._ignore_case = on
            elif flag == "-" and on:
                on = False
            elif flag == ":":
                return True
            elif flag == ")":
                return False
            elif flag not in "msU":
                raise self._wrong("something that RE2 does not know behind '(?'")

    def _repeated(self, node: Node) -> Node:
        """The node with the repeat that follows it, if one does."""
        character = self._peek()
        if character and character in "*+?":
            self._at += 1
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        elif character == "{":
            counts = self._counts()
            if counts is None:
                return node
            least, most = counts
        else:
            return node
        if self._peek() == "?":
            self._at += 1  # whether it prefers less does not change what matches
        following = self._peek()
        if following and following in "*+?":
            raise self._wrong("a repeat of a repeat")
        return Repeat(node, least, most)

    def _counts(self) -> tuple[int, int | None] | None:
        """`{n}`, `{n,}`, `{n,m}`; anything else is a brace that stands for itself."""
        end = self._text.find("}", self._at)
        inside = self._text[self._at + 1 : end] if end > 0 else ""
        first, comma, second = inside.partition(",")
        if not _is_count(first) or not (second == "" or _is_count(second)):
            return None
        self._at = end + 1
        least = int(first)
        most = None if comma and not second else int(second or first)
        if least > MAX_REPEATS or (most is not None and (most > MAX_REPEATS or most < least)):
            raise self._wrong(f"a repeat outside of 0 to {MAX_REPEATS}")
        return least, most

    def _escape(self) -> Node:
        character = self._take()
        if character in _ASSERTIONS:
            return Assertion(_ASSERTIONS[character])
        named = self._escaped_class(character)
        return Characters(named) if named is not None else self._literal(self._escaped_character(character))

    def _escaped_class(self, character: str) -> frozenset[str] | None:
        known = _CLASSES.get(character.lower())
        if known is not None:
            return self._where(known, character.isupper())
        if character not in "pP":
            return None
        category = self._take()
        if category == "{":
            category = self._until("}")
        negated = (character == "P") != category.startswith("^")
        category = category.removeprefix("^")
        if category != "Any" and not (category[:1] in "LMNPSZC" and len(category) in (1, 2)):
            raise self._wrong(f"a Unicode class {category!r} that is not known here")
        return self._where(lambda c: category == "Any" or unicodedata.category(c).startswith(category), negated)

    def _escaped_character(self, character: str) -> str:
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            digits = self._braced_or_two()
        elif character == "0":
            digits = ""
            while len(digits) < 2 and self._peek() and self._peek() in "01234567":
                digits += self._take()
            return chr(int(digits or "0", 8))
        elif character.isalnum() or not character.isascii():
            self._at -= 1
            raise self._wrong(f"an escape \\{character} that RE2 does not know")
        else:
            return character
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError) as problem:
            raise self._wrong("no number behind \\x") from problem

    def _braced_or_two(self) -> str:
        if self._peek() == "{":
            self._at += 1
            return self._until("}")
        return self._take() + self._take()

    def _class(self) -> frozenset[str]:
        negated = self._peek() == "^"
        self._at += negated
        accepted: set[str] = set()
        first = True
        while first or self._peek() != "]":
            first = False
            if self._peek(2) == "[:":
                accepted |= self._posix()
                continue
            low = self._take()
            if low == "\\":
                escaped = self._take()
                named = self._escaped_class(escaped)
                if named is not None:
                    accepted |= named
                    continue
                low = self._escaped_character(escaped)
            high = low
            if self._peek() == "-" and self._peek(2) != "-]":
                self._at += 1
                high = self._take()
                if high == "\\":
                    high = self._escaped_character(self._take())
            if high < low:
                raise self._wrong("a range that ends before it starts")
            accepted |= self._range(low, high)
        self._at += 1
        return self._any - accepted if negated else frozenset(accepted)

    def _range(self, low: str, high: str) -> set[str]:
        if not self._ignore_case:
            return {c for c in self._any if low <= c <= high}
        return {c for c in self._any if low <= c.lower() <= high or low <= c.upper() <= high}

    def _posix(self) -> frozenset[str]:
        self._at += 2
        name = self._until(":]")
        negated = name.startswith("^")
        known = _POSIX.get(name.removeprefix("^"))
        if known is None:
            raise self._wrong(f"a class [:{name}:] that RE2 does not know")
        return self._where(known, negated)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5
