"""Completion scripts for bash (3.2 and later), zsh and fish; the latter two say what each word means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from braidlog.cli.command_tree import DIRECTORY, FILE, NAMES, Command, Option, Takes

_BASH_HEAD: Final = """\
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
_BASH_TAIL: Final = """\
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -F _braidlog braidlog
"""

_ZSH_HEAD: Final = """\
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
_ZSH_TAIL: Final = """\
    esac
    _describe -t words braidlog entries
}

if [[ $funcstack[1] == _braidlog ]]; then
    _braidlog "$@"
elif (( $+functions[compdef] )); then
    compdef _braidlog braidlog
fi
"""

# Of both: behind what follows an option, before the words of each command.
_MIDDLE: Final = """\
    esac
    case "$at" in
"""

_FISH_HEAD: Final = """\
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


def bash_script(commands: Sequence[Command]) -> str:
    return _case_script(commands, _BASH_HEAD, _BASH_TAIL, "", _bash_offer, _bash_words)


def zsh_script(commands: Sequence[Command]) -> str:
    return _case_script(commands, _ZSH_HEAD, _ZSH_TAIL, "(", _zsh_offer, _zsh_entries)


def _case_script(
    commands: Sequence[Command],
    head: str,
    tail: str,
    opening: str,
    offer: Callable[[Takes], str],
    words: Callable[[Command], str],
) -> str:
    """bash and zsh alike choose by `case`; `opening` is what a pattern begins with."""
    lines = [head.replace("{paths}", "|".join(_quoted(_at(command.path)) for command in commands if command.path))]
    by_kind: dict[Takes, list[str]] = {}
    for command in commands:
        for option in command.options:
            if option.takes is not None:
                patterns = [_quoted(f"{_at(command.path)} {flag}") for flag in option.flags]
                by_kind.setdefault(option.takes, []).extend(patterns)
    for takes, patterns in by_kind.items():
        lines.append(f"        {opening}{'|'.join(patterns)})\n            {offer(takes)}\n            return ;;\n")
    lines.append(_MIDDLE)
    for command in commands:
        lines.append(f"        {opening}{_quoted(_at(command.path))})\n{words(command)}            ;;\n")
    lines.append(tail)
    return "".join(lines)


def _at(path: Sequence[str]) -> str:
    """The path as the script gathers it: every word with a blank before it."""
    return "".join(f" {word}" for word in path)


def _bash_words(command: Command) -> str:
    names = [name for name, _ in command.commands]
    flags = [flag for option in command.options for flag in option.flags]
    text = f"            words={_quoted(' '.join([*names, *flags]))}\n"
    if command.takes is not None:
        # Flags are offered once a dash was typed; before, what the command is about.
        text += f"            if [[ $word != -* ]]; then {_bash_offer(command.takes)}; return; fi\n"
    return text


def _zsh_entries(command: Command) -> str:
    pairs = list(command.commands)
    pairs += [(flag, option.help) for option in command.options for flag in option.flags]
    # A colon parts the word from its meaning.
    entries = " ".join(_quoted(f"{name}:{meaning}") for name, meaning in pairs)
    text = f"            entries=({entries})\n"
    if command.takes is not None:
        text += f"            if [[ $words[CURRENT] != -* ]]; then {_zsh_offer(command.takes)}; return; fi\n"
    return text


def _bash_offer(takes: Takes) -> str:
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


def _zsh_offer(takes: Takes) -> str:
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


def fish_script(commands: Sequence[Command]) -> str:
    paths = " ".join(_fish_quoted(" ".join(command.path)) for command in commands if command.path)
    lines = [_FISH_HEAD.replace("{paths}", paths)]
    for command in commands:
        start = f"complete -c braidlog -n {_fish_quoted(' '.join(('__braidlog_at', *command.path)))}"
        lines += [f"{start} -a {_fish_quoted(name)} -d {_fish_quoted(meaning)}\n" for name, meaning in command.commands]
        lines += [f"{start}{_fish_option(option)}\n" for option in command.options]
        if command.takes is not None:
            lines.append(f"{start}{_fish_offer(command.takes)}\n")
    return "".join(lines)


def _fish_option(option: Option) -> str:
    text = ""
    for flag in option.flags:
        text += f" -l {flag.removeprefix('--')}" if flag.startswith("--") else f" -s {flag.removeprefix('-')}"
    if option.takes is not None:
        # -x shuts files out, which `complete -f` has done for all but where -F brings them back.
        text += f" -r{_fish_offer(option.takes)}" if option.takes.kind == FILE else f" -x{_fish_offer(option.takes)}"
    return f"{text} -d {_fish_quoted(option.help)}"


def _fish_offer(takes: Takes) -> str:
    if takes.choices:
        return f" -a {_fish_quoted(' '.join(takes.choices))}"
    if takes.kind in NAMES:
        return f" -a '(__braidlog_names {NAMES[takes.kind]}){'=' if takes.assigns else ''}'"
    if takes.kind == FILE:
        return " -F"
    if takes.kind == DIRECTORY:
        return " -a '(__fish_complete_directories)'"
    return ""


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
