"""Regular expressions that members subscribe with, matched in linear time.

The syntax is RE2's, which has no back-references and no look-arounds; `pattern_syntax` reads it and refuses the rest.
Python's `re` backtracks, so one member's `(a+)+b` could hold up every group: instead, an expression becomes a small
program whose possible positions are followed all at once (Thompson), with the steps seen so far kept as an automaton.
"""

from __future__ import annotations

from typing import Final

from braidlog.coordinator.group.consumer.pattern_syntax import (
    AT_END,
    AT_START,
    BOUNDARY,
    NAME_CHARACTERS,
    Alternatives,
    Assertion,
    Characters,
    Node,
    Repeat,
    Sequence,
    parse,
)
from braidlog.core.protocol_errors import InvalidRegularExpressionError

# Instructions of a program; copies of repeated parts make it longer than the expression.
MAX_INSTRUCTIONS: Final = 5_000
# Steps kept of the automaton before it starts anew.
MAX_STEPS: Final = 20_000

# An instruction: read one of these characters, go two ways, go on if something holds here, or done.
_READ: Final = 0
_SPLIT: Final = 1
_ASSERT: Final = 2
_DONE: Final = 3

# What stands before a position: nothing, a letter of a word, or something else.
_NOTHING: Final = 0
_WORD: Final = 1
_OTHER: Final = 2

_State = tuple[frozenset[int], int]


class Pattern:
    """A compiled expression; raises InvalidRegularExpressionError where RE2 would not take it."""

    def __init__(self, text: str, alphabet: frozenset[str] = NAME_CHARACTERS) -> None:
        self.text = text
        # (kind, characters or assertion, next, other next)
        self._program: list[tuple[int, frozenset[str] | int, int, int]] = []
        self._visits = 0
        self._compile(parse(text, alphabet))
        self._emit(_DONE)
        self._steps: dict[tuple[_State, str], _State | None] = {}
        self._first: _State = (frozenset({0}), _NOTHING)

    def matches(self, name: str) -> bool:
        """Whether the expression stands for the whole name."""
        state: _State | None = self._first
        for character in name:
            if state is None:
                return False
            state = self._step(state, character)
        return state is not None and self._step(state, "") is not None

    def _step(self, state: _State, character: str) -> _State | None:
        """The state behind the character; "" is the end of the name, behind which any state means yes."""
        key = (state, character)
        if key in self._steps:
            return self._steps[key]
        if len(self._steps) >= MAX_STEPS:
            self._steps.clear()
        reached = self._reached(state, character)
        if not character:
            after: _State | None = state if any(self._program[at][0] == _DONE for at in reached) else None
        else:
            going = [self._program[at] for at in reached]
            follow = frozenset(
                next_at
                for kind, accepted, next_at, _ in going
                if kind == _READ and not isinstance(accepted, int) and character in accepted
            )
            after = (follow, _WORD if _is_word(character) else _OTHER) if follow else None
        self._steps[key] = after
        return after

    def _reached(self, state: _State, following: str) -> set[int]:
        """The instructions that can be reached without reading."""
        starts, before = state
        reached: set[int] = set()
        waiting = list(starts)
        while waiting:
            at = waiting.pop()
            if at in reached:
                continue
            reached.add(at)
            kind, what, next_at, other = self._program[at]
            if kind == _SPLIT:
                waiting.append(next_at)
                waiting.append(other)
            elif kind == _ASSERT and isinstance(what, int) and _holds(what, before, following):
                waiting.append(next_at)
        return reached

    # From the tree to the program

    def _emit(self, kind: int, what: frozenset[str] | int = 0, next_at: int = -1, other: int = -1) -> int:
        at = len(self._program)
        if at >= MAX_INSTRUCTIONS:
            raise InvalidRegularExpressionError("the regular expression is too large: repeat less")
        self._program.append((kind, what, at + 1 if next_at < 0 else next_at, other))
        return at

    def _patch(self, at: int, next_at: int, other: int) -> None:
        kind, what, _, _ = self._program[at]
        self._program[at] = (kind, what, next_at, other)

    def _compile(self, node: Node) -> None:
        self._visits += 1
        if self._visits > 4 * MAX_INSTRUCTIONS:
            # Repeats of nothing make no instructions, but many of them.
            raise InvalidRegularExpressionError("the regular expression is too large: repeat less")
        if isinstance(node, Characters):
            self._emit(_READ, node.accepted)
        elif isinstance(node, Assertion):
            self._emit(_ASSERT, node.kind)
        elif isinstance(node, Sequence):
            for part in node.parts:
                self._compile(part)
        elif isinstance(node, Alternatives):
            self._compile_alternatives(node)
        else:
            self._compile_repeat(node)

    def _compile_alternatives(self, node: Alternatives) -> None:
        ends: list[int] = []
        for part in node.parts[:-1]:
            split = self._emit(_SPLIT)
            self._compile(part)
            ends.append(self._emit(_SPLIT))
            self._patch(split, split + 1, len(self._program))
        self._compile(node.parts[-1])
        for end in ends:
            self._patch(end, len(self._program), len(self._program))

    def _compile_repeat(self, node: Repeat) -> None:
        for _ in range(node.least):
            self._compile(node.part)
        if node.most is None:
            split = self._emit(_SPLIT)
            self._compile(node.part)
            back = self._emit(_SPLIT)
            self._patch(back, split, split)
            self._patch(split, split + 1, len(self._program))
            return
        splits: list[int] = []
        for _ in range(node.most - node.least):
            splits.append(self._emit(_SPLIT))
            self._compile(node.part)
        for split in splits:
            self._patch(split, split + 1, len(self._program))


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _holds(assertion: int, before: int, following: str) -> bool:
    if assertion == AT_START:
        return before == _NOTHING
    if assertion == AT_END:
        return not following
    boundary = (before == _WORD) != (bool(following) and _is_word(following))
    return boundary if assertion == BOUNDARY else not boundary
