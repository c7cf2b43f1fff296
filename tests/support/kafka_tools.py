"""Apache Kafka's command line tools, one after the other in one Java process (`tests/interop/java/ToolRunner.java`).

A test that runs dozens of them would spend most of its time on starting them; `tools.peers.kafka.run_tool` runs one as
a process of its own.
"""

from __future__ import annotations

import subprocess
from base64 import b64decode, b64encode
from types import TracebackType
from typing import NamedTuple, Self

from tools.peers.kafka import TOOLS

from support.java_programs import tool_runner


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class KafkaTools:
    """`run` by the names of Kafka's bin directory."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            tool_runner().command("ToolRunner"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, tool: str, *arguments: str) -> Ended:
        """To its end; one that does not end is given up by the runner itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [TOOLS[tool], *arguments]
        self._process.stdin.write(" ".join(f".{b64encode(word.encode()).decode()}" for word in words) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the process of the tools ended with {self._process.wait()}"
        code, out, err = answer.split()
        return Ended(int(code), *(b64decode(text[1:]).decode() for text in (out, err)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
