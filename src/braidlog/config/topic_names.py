"""Which names a topic may have, and which two would be one in a metric's name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from braidlog.core.protocol_errors import InvalidTopicError

MAX_LENGTH: Final = 249
_LEGAL: Final = r"[a-zA-Z0-9._-]+"
# The topics that hold offsets and transaction states; only the broker writes to them.
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


def problem_with(name: str) -> str | None:
    """Why the name cannot be a topic's; none for a legal one."""
    if not name:
        return "a topic's name must not be empty"
    if name in (".", ".."):
        return f"a topic's name must not be {name!r}"
    if len(name) > MAX_LENGTH:
        return f"a topic's name has at most {MAX_LENGTH} characters, this one has {len(name)}: {name!r}"
    if not re.fullmatch(_LEGAL, name):
        return f"the name {name!r} has a character other than ASCII letters, digits, '.', '_' and '-'"
    return None


def validate_name(name: str) -> None:
    problem = problem_with(name)
    if problem is not None:
        raise InvalidTopicError(problem)


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def has_collision_characters(name: str) -> bool:
    """Whether the name is worth a warning: '.' and '_' look the same in the names of metrics."""
    return "." in name or "_" in name


def collisions(name: str, existing: Iterable[str]) -> list[str]:
    """Existing topics that differ from `name` only in '.' against '_'."""
    folded = name.replace(".", "_")
    return [other for other in existing if other != name and other.replace(".", "_") == folded]
