"""`braidlog serve` where it cannot start, or hardly: a sentence that says what to do, and never a traceback."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tools.peers.process import LoggedProcess

from support.broker import READY, serve_command, start_braidlog
from support.disks import failing_calls, small_disk

START_S = 60.0


def refused(*words: str | Path, data: Path, prefix: Sequence[str] = (), env: Mapping[str, str] | None = None) -> str:
    """The last line of a `serve` that ends by itself with exit code 1."""
    command = [*prefix, *serve_command(data, arguments=[str(word) for word in words])]
    environment = {**os.environ, **(env or {})}
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False, env=environment)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("braidlog: ")
    return line


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("--data", ""), "names no file or directory"),
        (("--data", " "), "names no file or directory"),
        (("--config", ""), "names no file or directory"),
        (("--listen", ""), "give HOST:PORT"),
        (("--listen", "9092"), "give HOST:PORT"),
        (("--listen", "127.0.0.1:"), "is not a port"),
        (("--listen", "127.0.0.1:70000"), "is not a port"),
    ],
)
def test_what_serve_does_not_understand(cli_of: Callable[[None], Any], words: tuple[str, ...], reported: str) -> None:
    cli_of(None)("serve", *words).failed(reported, code=2)


def test_places_that_cannot_be_served_from(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    assert "this user may write to" in refused(data=file)
    assert "Not a directory" in refused(data=file / "below")
    assert "coordination store" in refused("--set", f"braidlog.store.dir={file}", data=tmp_path / "data")
    missing = tmp_path / "missing.properties"
    assert f"cannot read the settings file {missing}" in refused("--config", missing, data=tmp_path / "data")
    assert "Is a directory" in refused("--config", tmp_path, data=tmp_path / "data")


def test_permission_denied(tmp_path: Path) -> None:
    calls = failing_calls(tmp_path, tmp_path / "data")
    calls.fail("c", errno.EACCES)
    assert "Permission denied" in refused(data=tmp_path / "data", env=calls.env)


def test_addresses_that_cannot_be_had(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "taken by another program" in refused("--listen", f"127.0.0.1:{port}", data=tmp_path / "data")
        http = f"braidlog.http.listen=127.0.0.1:{port}"
        assert "set braidlog.http.listen to a free address" in refused("--set", http, data=tmp_path / "data")
    # 192.0.2.0/24 is for documentation: no machine has such an address.
    assert "not an address of this machine" in refused("--listen", "192.0.2.1:0", data=tmp_path / "data")
    assert "cannot listen on a..b:0" in refused("--listen", "a..b:0", data=tmp_path / "data")
    for nonsense in ("abc", "127.0.0.1:x", "127.0.0.1:70000"):
        line = refused("--set", f"braidlog.http.listen={nonsense}", data=tmp_path / "data")
        assert "expected host:port" in line


def test_a_read_only_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        disk.remount("ro")
        line = refused(data=disk.path / "data", prefix=disk.prefix)
        assert "Read-only file system" in line
        assert "--data or log.dirs names another" in line


def test_a_disk_that_is_full_before_the_first_start(tmp_path: Path) -> None:
    """Without room for a single file nothing can be served; with room for names alone, what needs none is."""
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        disk.fill()
        subprocess.run([*disk.prefix, "mount", "-o", "remount,nr_inodes=2", str(disk.path)], check=True)
        line = refused(data=disk.path / "data", prefix=disk.prefix)
        assert "No space left on device" in line
        assert "on a disk with room" in line


def test_the_ready_line_has_nowhere_to_go(tmp_path: Path) -> None:
    """Standard output is a file on a full disk: the broker serves, and says so in its log."""
    command = ["sh", "-c", 'exec "$@" > /dev/full', "sh", *serve_command(tmp_path / "data")]
    with LoggedProcess("braidlog", command, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
        assert int(process.wait_for_line(READY)[1])
        assert process.terminate() == 0
        assert "Traceback" not in process.log()


def test_started_with_closed_streams(tmp_path: Path) -> None:
    """What the broker opens first must not become its standard output."""
    http = tmp_path / "http-port"
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>"$0"', str(http), *serve_command(tmp_path / "data")]
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + START_S
        while not (http.exists() and "metrics and health" in http.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_S) == 0
    assert "Assertion" not in http.read_text()


def test_the_ready_line_counts_from_the_start_of_the_process(tmp_path: Path) -> None:
    """What Python needs before the first line of ours is part of what a person waits for."""
    late = tmp_path / "late"
    late.mkdir()
    (late / "sitecustomize.py").write_text("import time\ntime.sleep(2)\n")
    search = os.pathsep.join(filter(None, (str(late), os.environ.get("PYTHONPATH"))))
    with start_braidlog(tmp_path / "data", env={"PYTHONPATH": search}) as broker:
        found = re.search(r"is ready on .* after ([0-9.]+) s", broker.log())
        assert found is not None
        assert float(found[1]) >= 2.0
