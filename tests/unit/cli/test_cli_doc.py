"""docs/CLI.md names every command and option that there is."""

from __future__ import annotations

from pathlib import Path

from braidlog.cli.command_tree import commands_of
from braidlog.cli.program import build_parser

PAGE = Path(__file__).parents[3] / "docs" / "CLI.md"


def test_the_page_names_everything() -> None:
    text = PAGE.read_text()
    missing = []
    for command in commands_of(build_parser()):
        if command.path and " ".join(command.path) not in text:
            missing.append(" ".join(command.path))
        for option in command.options:
            if option.flags[-1] not in text and "--help" not in option.flags:
                missing.append(f"{' '.join(command.path)} {option.flags[-1]}")
    assert missing == []
