"""Completion for fish, with what each word means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from braidlog.cli.command_tree import DIRECTORY, FILE, NAMES, Command, Option, Takes

_HEAD: Final = """\
# braidlog completion for fish; made by: braidlog completion fish
function __braidlog_names
    set -l server
    set -l words (commandline -opc)
    for number in (seq (count $words))
        if contains -- $words[$number] --bootstrap --bootstrap-server
            set -a server --bootstrap $words[(math $number + 1)]
        end
        if test "$words[$number]" = --profile
            set -a server --profile $words[(math $number + 1)]
        end
        if contains -- $words[$number] --config --command-config; and test -f "$words[(math $number + 1)]"
            set -a server --command-config $words[(math $number + 1)]
        end
    end
    braidlog completion $argv[1] --line (commandline -cp | string collect) $server 2>/dev/null
end

function __braidlog_at
    set -l at
    for word in (commandline -opc)[2..-1]
        if contains -- (string join ' ' -- $at $word) {paths}
            set -a at $word
        end
    end
    test "$at" = "$argv"
end

complete -c braidlog -f
"""


def script(commands: Sequence[Command]) -> str:
    paths = " ".join(_quoted(" ".join(command.path)) for command in commands if command.path)
    lines = [_HEAD.replace("{paths}", paths)]
    for command in commands:
        start = f"complete -c braidlog -n {_quoted(' '.join(('__braidlog_at', *command.path)))}"
        lines += [f"{start} -a {_quoted(name)} -d {_quoted(meaning)}\n" for name, meaning in command.commands]
        lines += [f"{start}{_option(option)}\n" for option in command.options]
        if command.takes is not None:
            lines.append(f"{start}{_offer(command.takes)}\n")
    return "".join(lines)


def _option(option: Option) -> str:
    text = ""
    for flag in option.flags:
        text += f" -l {flag.removeprefix('--')}" if flag.startswith("--") else f" -s {flag.removeprefix('-')}"
    if option.takes is not None:
        # -x shuts files out, which `complete -f` has done for all but where -F brings them back.
        text += f" -r{_offer(option.takes)}" if option.takes.kind == FILE else f" -x{_offer(option.takes)}"
    return f"{text} -d {_quoted(option.help)}"


def _offer(takes: Takes) -> str:
    if takes.choices:
        return f" -a {_quoted(' '.join(takes.choices))}"
    if takes.kind in NAMES:
        return f" -a '(__braidlog_names {NAMES[takes.kind]}){'=' if takes.assigns else ''}'"
    if takes.kind == FILE:
        return " -F"
    if takes.kind == DIRECTORY:
        return " -a '(__fish_complete_directories)'"
    return ""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
