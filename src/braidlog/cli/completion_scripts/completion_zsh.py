"""Completion for zsh, with what each word means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from braidlog.cli.command_tree import DIRECTORY, FILE, NAMES, Command, Takes

_HEAD: Final = """\
#compdef braidlog
# braidlog completion for zsh; made by: braidlog completion zsh
_braidlog_names() {
    local -a names server
    local number
    for ((number = 2; number < $#words; number++)); do
        case $words[number] in
            (--bootstrap|--bootstrap-server) server+=(--bootstrap $words[number+1]) ;;
            (--bootstrap=*|--bootstrap-server=*) server+=(--bootstrap ${words[number]#*=}) ;;
            (--profile) server+=(--profile $words[number+1]) ;;
            (--config|--command-config) [[ -f $words[number+1] ]] && server+=(--command-config $words[number+1]) ;;
        esac
    done
    names=(${(f)"$(braidlog completion $1 --line "$words" $server 2>/dev/null)"})
    if [[ -n $2 ]]; then compadd -S $2 -a names; else compadd -a names; fi
}

_braidlog() {
    local at= number
    local -a entries
    for ((number = 2; number < CURRENT; number++)); do
        case "$at $words[number]" in
            ({paths}) at="$at $words[number]" ;;
        esac
    done
    case "$at $words[CURRENT-1]" in
"""
_MIDDLE: Final = """\
    esac
    case "$at" in
"""
_TAIL: Final = """\
    esac
    _describe -t words braidlog entries
}

if [[ $funcstack[1] == _braidlog ]]; then
    _braidlog "$@"
elif (( $+functions[compdef] )); then
    compdef _braidlog braidlog
fi
"""


def script(commands: Sequence[Command]) -> str:
    lines = [_HEAD.replace("{paths}", "|".join(_quoted(_at(command.path)) for command in commands if command.path))]
    by_kind: dict[Takes, list[str]] = {}
    for command in commands:
        for option in command.options:
            if option.takes is not None:
                patterns = [_quoted(f"{_at(command.path)} {flag}") for flag in option.flags]
                by_kind.setdefault(option.takes, []).extend(patterns)
    for takes, patterns in by_kind.items():
        lines.append(f"        ({'|'.join(patterns)})\n            {_offer(takes)}\n            return ;;\n")
    lines.append(_MIDDLE)
    for command in commands:
        lines.append(f"        ({_quoted(_at(command.path))})\n{_entries(command)}            ;;\n")
    lines.append(_TAIL)
    return "".join(lines)


def _at(path: Sequence[str]) -> str:
    """The path as the script gathers it: every word with a blank before it."""
    return "".join(f" {word}" for word in path)


def _entries(command: Command) -> str:
    pairs = list(command.commands)
    pairs += [(flag, option.help) for option in command.options for flag in option.flags]
    # A colon parts the word from its meaning.
    entries = " ".join(_quoted(f"{name}:{meaning}") for name, meaning in pairs)
    text = f"            entries=({entries})\n"
    if command.takes is not None:
        text += f"            if [[ $words[CURRENT] != -* ]]; then {_offer(command.takes)}; return; fi\n"
    return text


def _offer(takes: Takes) -> str:
    if takes.choices:
        return "compadd -- " + " ".join(map(_quoted, takes.choices))
    if takes.kind in NAMES:
        return f"_braidlog_names {NAMES[takes.kind]}{' =' if takes.assigns else ''}"
    if takes.kind == FILE:
        return "_files"
    if takes.kind == DIRECTORY:
        return "_files -/"
    return ":"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
