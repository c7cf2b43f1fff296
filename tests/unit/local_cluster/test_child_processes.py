from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from braidlog.local_cluster.child_processes import exit_text, kill_with_parent, last_lines


def test_how_a_process_ended() -> None:
    assert exit_text(0) == "exit code 0"
    assert exit_text(1) == "exit code 1"
    assert exit_text(-9) == "killed by SIGKILL"
    assert exit_text(-99) == "killed by signal 99"


def test_the_last_lines_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_lines(log, 3) == ""
    log.write_bytes(b"".join(b"line %d\n" % number for number in range(100_000)) + b"\xff\n")
    assert last_lines(log, 2) == "line 99999\n\ufffd"


def test_a_child_is_killed_with_its_parent() -> None:
    """The parent starts a child that holds the pipe's end, and ends without a word; the pipe ends with both."""
    program = (
        "import os, subprocess, sys\n"
        "from braidlog.local_cluster.child_processes import kill_with_parent\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], preexec_fn=kill_with_parent)\n"
        "os._exit(3)\n"
    )
    assert callable(kill_with_parent)
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 3
