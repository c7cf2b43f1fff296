"""Completion for bash (3.2 and later)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from braidlog.cli.command_tree import DIRECTORY, FILE, NAMES, Command, Takes

_HEAD: Final = """\
# braidlog completion for bash; made by: braidlog completion bash
_braidlog_names() {
    local server= file= profile=
    # By the line, not by words: bash breaks words at the colon of HOST:PORT.
    if [[ $COMP_LINE =~ --bootstrap(-server)?[=\\ ]+([^\\ ]+) ]]; then server=${BASH_REMATCH[2]}; fi
    if [[ $COMP_LINE =~ --(command-)?config[=\\ ]+([^\\ ]+) ]]; then file=${BASH_REMATCH[2]}; fi
    if [[ ! -f $file ]]; then file=; fi
    if [[ $COMP_LINE =~ --profile[=\\ ]+([^\\ ]+) ]]; then profile=${BASH_REMATCH[1]}; fi
    braidlog completion "$1" --line "$COMP_LINE" ${server:+--bootstrap "$server"} \\
        ${file:+--command-config "$file"} ${profile:+--profile "$profile"} 2>/dev/null
}

_braidlog() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} at= number words= IFS=$' \\t\\n'
    COMPREPLY=()
    for ((number = 1; number < COMP_CWORD; number++)); do
        case "$at ${COMP_WORDS[number]}" in
            {paths}) at="$at ${COMP_WORDS[number]}" ;;
        esac
    done
    case "$at $before" in
"""
_MIDDLE: Final = """\
    esac
    case "$at" in
"""
_TAIL: Final = """\
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -F _braidlog braidlog
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
        lines.append(f"        {'|'.join(patterns)})\n            {_offer(takes)}\n            return ;;\n")
    lines.append(_MIDDLE)
    for command in commands:
        lines.append(f"        {_quoted(_at(command.path))})\n{_words(command)}            ;;\n")
    lines.append(_TAIL)
    return "".join(lines)


def _at(path: Sequence[str]) -> str:
    """The path as the script gathers it: every word with a blank before it."""
    return "".join(f" {word}" for word in path)


def _words(command: Command) -> str:
    names = [name for name, _ in command.commands]
    flags = [flag for option in command.options for flag in option.flags]
    text = f"            words={_quoted(' '.join([*names, *flags]))}\n"
    if command.takes is not None:
        # Flags are offered once a dash was typed; before, what the command is about.
        text += f"            if [[ $word != -* ]]; then {_offer(command.takes)}; return; fi\n"
    return text


def _offer(takes: Takes) -> str:
    if takes.choices:
        return f'COMPREPLY=($(compgen -W {_quoted(" ".join(takes.choices))} -- "$word"))'
    if takes.kind in NAMES:
        names = f'-W "$(_braidlog_names {NAMES[takes.kind]})" -- "$word"'
        if takes.assigns:
            return f"compopt -o nospace 2>/dev/null; COMPREPLY=($(compgen -S = {names}))"
        return f"COMPREPLY=($(compgen {names}))"
    if takes.kind in (FILE, DIRECTORY):
        kind = "-f" if takes.kind == FILE else "-d"
        return f"IFS=$'\\n'; compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen {kind} -- \"$word\"))"
    return ":"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
