"""Names and settings of topics for tests."""

from __future__ import annotations

import itertools
import os
import re
import secrets
from collections.abc import Mapping
from typing import Final

# A name may have 249 characters; the number that makes it unique needs some.
_LONGEST_PREFIX: Final = 200

_numbers = itertools.count(1)
_run = secrets.token_hex(3)


def unique_topic(prefix: str = "test") -> str:
    """A legal name that nobody has been given before, in this process or another."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", prefix).strip("-") or "test"
    return f"{stem[:_LONGEST_PREFIX]}-{_run}-{os.getpid()}-{next(_numbers)}"


def config_texts(configs: Mapping[str, object]) -> dict[str, str]:
    """`retention_ms=1000` and `{"retention.ms": 1000}` say the same; True and False as Kafka writes them."""
    return {
        name if "." in name else name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in configs.items()
    }
