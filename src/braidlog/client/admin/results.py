"""What a call on many things answers: by thing its result, or the error that refused it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ProtocolError

Item = TypeVar("Item", bound=Hashable)
Answer = TypeVar("Answer")

# A broker's refusal, or that the broker which had to be asked could not be.
Failure = ProtocolError | BraidlogError


class Results(Mapping[Item, Answer]):
    """A mapping from each thing that was asked about to its result, in the order asked.

    `results[item]` is the result, or raises the item's error; so do `values()` and `items()` when they come to it:
    a failure is never taken for a result. `errors` and `outcomes` look at failures without raising them.
    """

    __slots__ = ("_outcomes",)

    def __init__(self, outcomes: Mapping[Item, Answer | Failure]) -> None:
        self._outcomes = dict(outcomes)

    def __getitem__(self, item: Item) -> Answer:
        outcome = self._outcomes[item]
        if isinstance(outcome, (ProtocolError, BraidlogError)):
            raise outcome.with_traceback(None)
        return outcome

    def __iter__(self) -> Iterator[Item]:
        return iter(self._outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __contains__(self, item: object) -> bool:
        return item in self._outcomes

    def __eq__(self, other: object) -> bool:
        # A mapping's own would raise when it comes to a failure.
        if isinstance(other, Results):
            return self._outcomes == other._outcomes
        return self._outcomes == dict(other) if isinstance(other, Mapping) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Results({self._outcomes!r})"

    @property
    def outcomes(self) -> dict[Item, Answer | Failure]:
        """All of them, failures as the exceptions that they are."""
        return dict(self._outcomes)

    @property
    def errors(self) -> dict[Item, Failure]:
        """The failures alone; empty when all went well."""
        return {
            item: outcome
            for item, outcome in self._outcomes.items()
            if isinstance(outcome, (ProtocolError, BraidlogError))
        }

    @property
    def succeeded(self) -> dict[Item, Answer]:
        """The results alone."""
        return {
            item: outcome
            for item, outcome in self._outcomes.items()
            if not isinstance(outcome, (ProtocolError, BraidlogError))
        }

    def raise_for_errors(self) -> Results[Item, Answer]:
        """The results themselves if all went well; else the first error, with the others as its notes."""
        errors = self.errors
        if not errors:
            return self
        first, *others = errors.values()
        # The same results may be asked twice; the notes are written once.
        if others and not getattr(first, "__notes__", None):
            first.add_note(f"{len(others)} more of {len(self)} failed:")
            for other in others:
                first.add_note(f"  {other}")
        raise first.with_traceback(None)
