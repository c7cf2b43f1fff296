r"""Java's properties syntax, as java.util.Properties reads it.

    # comment, ! comment         only where the first character that is not blank says so
    key=value  key:value         the separator may have blanks around it
    key value                    or be blanks alone
    key                          without a value: the empty one
    a\                           a backslash before the end of a line continues it; the next
      b                          line loses its leading blanks: "ab"
    \t \n \r \f \uXXXX           escapes; a backslash before any other character is dropped

Blanks are space, tab and form feed. Blanks at the end of a value stay.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_BLANKS: Final = " \t\f"
_SEPARATORS: Final = "=:"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    key: str
    value: str
    line: int


class PropertiesError(ValueError):
    """A \\u escape without four hexadecimal digits: the only thing that is not allowed."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def parse_properties(text: str) -> list[Property]:
    """Every pair in order; of two with one key the later counts, which is up to the reader."""
    pairs = []
    for number, line in _logical_lines(text):
        key_end, value_start = _split(line)
        pairs.append(Property(_unescape(line[:key_end], number), _unescape(line[value_start:], number), number))
    return pairs


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without blank ones and comments, numbered by their first line."""
    pending = ""
    first = 0
    lines = re.split(r"\r\n|\r|\n", text)
    for number, natural in enumerate(lines, 1):
        stripped = natural.lstrip(_BLANKS)
        # A line that so far holds nothing but a continuation is a new one still.
        if not pending:
            if not stripped or stripped[0] in "#!":
                continue
            first = number
        if _continues(stripped):
            pending += stripped[:-1]
            if number < len(lines):
                continue
        else:
            pending += stripped
        yield first, pending
        pending = ""
    if pending:
        yield first, pending


def _continues(line: str) -> bool:
    """An odd number of backslashes at the end; in an even number each escapes the next."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[int, int]:
    """Where the key ends and where the value begins."""
    position = 0
    while position < len(line):
        character = line[position]
        if character == "\\":
            position += 2
            continue
        if character in _SEPARATORS or character in _BLANKS:
            break
        position += 1
    key_end = min(position, len(line))
    rest = line[key_end:].lstrip(_BLANKS)
    if rest[:1] in tuple(_SEPARATORS):
        rest = rest[1:].lstrip(_BLANKS)
    return key_end, len(line) - len(rest)


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            out.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise PropertiesError(line, f"\\u{digits} is not an escape: four hexadecimal digits must follow \\u")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    # Two escaped halves of a character beyond the first 65,536 make one.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
