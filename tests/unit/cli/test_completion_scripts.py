from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from braidlog.cli.command_tree import Command, commands_of
from braidlog.cli.program import build_parser, main


@pytest.fixture(scope="module")
def commands() -> dict[tuple[str, ...], Command]:
    return {command.path: command for command in commands_of(build_parser())}


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_accept_their_script(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / f"braidlog.{shell}"
    path.write_text(script(shell, capsys))
    checked = subprocess.run([program, "-n", str(path)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_name_every_command_and_option(
    shell: str, capsys: pytest.CaptureFixture[str], commands: dict[tuple[str, ...], Command]
) -> None:
    text = script(shell, capsys)
    for command in commands.values():
        for name, _ in command.commands:
            assert name in text
        for each in command.options:
            for flag in each.flags:
                assert (flag if shell != "fish" else flag.lstrip("-")) in text


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["topics", "de"], ["describe", "delete"]),
        (["delete-records", "or"], ["orders"]),
        (["consume", "orders", "--iso"], ["--isolation"]),
        (["consume", "orders", "--isolation", "read_c"], ["read_committed"]),
        (["produce", "--compression", ""], ["none", "gzip", "snappy", "lz4", "zstd"]),
        (["configs", "alter", "--topic", "or"], ["orders"]),
        (["consume", "or"], ["orders"]),
        (["consume", "--partition", ""], []),
        (["groups", "describe", "b"], ["billing"]),
        (["groups", "re"], ["reset-offsets"]),
        (["groups", "reset-offsets", "billing", "--topic", "us"], ["users"]),
        (["transactions", "abort", "--transactional-id", ""], ["tx-1"]),
        (["completion", "b"], ["bash", "broker-settings"]),
        (["topics", "list", "--profile", ""], ["prod"]),
        (["produce", "orders", "-X", "linger"], ["linger.ms="]),
        (["perf", "consume", "orders", "-X", "linger"], []),
        (["consume", "orders", "-X", "auto.off"], ["auto.offset.reset="]),
        (["serve", "--set", "log.retention.m"], ["log.retention.minutes=", "log.retention.ms="]),
        (["topics", "create", "x", "--topic-config", "retention.m"], ["retention.ms="]),
        (["configs", "alter", "--topic", "x", "--set", "retention.m"], ["retention.ms="]),
        (["configs", "alter", "--topic", "x", "--delete", "retention.m"], ["retention.ms"]),
        (["configs", "alter", "--brokers", "--set", "log.retention.m"], ["log.retention.ms="]),
        (["configs", "alter", "--group", "g", "--set", "consumer.s"], ["consumer.session.timeout.ms="]),
    ],
)
def test_bash_offers(words: list[str], offered: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    quoted = " ".join(f"'{word}'" for word in ["braidlog", *words])
    ask = f"""
braidlog() {{ case "$1 $2" in
    'completion topics') printf 'orders\\nusers\\n' ;;
    'completion groups') printf 'billing\\nshipping\\n' ;;
    'completion transactions') echo tx-1 ;;
    'completion profiles') echo prod ;;
    *-settings) {{ unset -f braidlog; {sys.executable} -m braidlog "$@"; }} ;;
esac; }}
COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; COMP_LINE="${{COMP_WORDS[*]}}"
_braidlog; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run([bash, "-c", script("bash", capsys) + ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == offered
    assert done.stderr == ""
