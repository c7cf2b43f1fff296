"""Settings that clients speak of, as the options that stand for them on the command line."""

from __future__ import annotations

from typing import Final

_OPTIONS: Final = (
    ("bootstrap.servers", "--bootstrap"),
    ("(request.timeout.ms)", "(--request-timeout gives it longer)"),
)


def in_options(message: str) -> str:
    for setting, option in _OPTIONS:
        message = message.replace(setting, option)
    return message
