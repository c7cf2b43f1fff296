"""kcat, the command line client on librdkafka, when the machine has it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from tools.peers.maven import PeerMissing


def kcat_path() -> str:
    found = shutil.which("kcat") or shutil.which("kafkacat")
    if found is None:
        raise PeerMissing("kcat is not installed (on Debian: apt-get install kcat)")
    return found


def run_kcat(
    arguments: Sequence[str], *, input_bytes: bytes | None = None, timeout_s: float = 60.0
) -> subprocess.CompletedProcess[bytes]:
    """Run kcat to its end and return what it wrote; a non-zero exit is the caller's to judge."""
    return subprocess.run(
        [kcat_path(), *arguments],
        input=input_bytes if input_bytes is not None else b"",
        capture_output=True,
        timeout=timeout_s,
    )
