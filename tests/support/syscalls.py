"""Which system calls a program made, in which order: strace's output, read back."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_LINE = re.compile(r"^(?P<thread>\d+) +(?P<rest>.*)$")
_WHOLE = re.compile(r"^(?P<name>\w+)\((?P<arguments>.*)\)\s+= (?P<result>-?\d+)")
_BEGUN = re.compile(r"^(?P<name>\w+)\((?P<arguments>.*) <unfinished \.\.\.>$")
_ENDED = re.compile(r"^<\.\.\. (?P<name>\w+) resumed>.*= (?P<result>-?\d+)")
_TARGET = re.compile(r"^\d+<(?P<target>.*?)>+(,|$|\))")


@dataclass(frozen=True)
class Step:
    """A call beginning (`result` none) or returning; `target` is the path or the connection of its descriptor."""

    name: str
    target: str
    result: int | None


def traced(trace: Path, calls: str) -> list[str]:
    """What to put in front of a program to have its calls written to `trace`; skips the test without strace."""
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed: the order of system calls cannot be seen")
    # -D: the program stays our child, the tracer becomes its grandchild; -yy: names instead of descriptors.
    return [program, "-D", "-f", "-yy", "-s", "0", "-e", f"trace={calls}", "-o", str(trace)]


def steps(trace: Path) -> Iterator[Step]:
    """In the order in which they happened; calls that other threads interrupt are two steps far apart."""
    open_calls: dict[str, tuple[str, str]] = {}
    for line in trace.read_text(errors="replace").splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        thread, rest = found["thread"], found["rest"]
        whole, begun, ended = _WHOLE.match(rest), _BEGUN.match(rest), _ENDED.match(rest)
        if whole is not None:
            target = _target(whole["arguments"])
            yield Step(whole["name"], target, None)
            yield Step(whole["name"], target, int(whole["result"]))
        elif begun is not None:
            open_calls[thread] = (begun["name"], _target(begun["arguments"]))
            yield Step(*open_calls[thread], None)
        elif ended is not None and thread in open_calls:
            name, target = open_calls.pop(thread)
            yield Step(name, target, int(ended["result"]))


def _target(arguments: str) -> str:
    found = _TARGET.match(arguments)
    return found["target"] if found is not None else ""
