"""A broker in a process of its own, `braidlog serve`: it can be killed, and it ends when its parent does."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from braidlog.local_cluster.child_processes import exit_text, kill_with_parent, last_lines

# A broker is ready in a tenth of a second; a machine that is busy with other tests may take a hundred times that.
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 60.0

_READY: Final = re.compile(rb"ready on \S+:(\d+)[^\n]*\n")
_HTTP: Final = re.compile(r"metrics and health on http://(\S+)/metrics")
# Variables with these prefixes would set something of the broker behind its owner's back; these few are meant.
_SETTING_PREFIXES: Final = ("BRAIDLOG_", "KAFKA_")
_PASSED_ON: Final = frozenset(("BRAIDLOG_PURE", "BRAIDLOG_CRASH_AT"))
_LOG_LINES: Final = 40


class BrokerFailed(Exception):
    """The broker did not start, did not stop, or died; the text has the reason and its last log lines."""


class BrokerProcess:
    """`log_path` takes what the broker says on standard error, over all of its lives.

    `prefix` comes before the command from the next start on: another network, another braidlog's environment.
    """

    def __init__(self, log_path: Path, name: str = "braidlog broker", prefix: Sequence[str] = ()) -> None:
        self.log_path = log_path
        self._name = name
        self.prefix = prefix
        self._child: subprocess.Popen[bytes] | None = None
        self._said = b""
        self._log_starts = 0
        self._paused = False

    @property
    def pid(self) -> int:
        if self._child is None:
            raise BrokerFailed(f"{self._name} is not running")
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and unless it was started."""
        return None if self._child is None else self._child.poll()

    def start(self, settings: Mapping[str, str]) -> int:
        arguments: list[str] = []
        for key, value in settings.items():
            arguments += ["--set", f"{key}={value}"]
        self.begin(arguments)
        return self.wait_until_ready()

    def begin(self, arguments: Sequence[str], lock: int | None = None) -> None:
        """`braidlog serve` with these arguments; returns at once.

        With the descriptor of a `lock`, which it then holds as well, it is also killed at once when the thread that
        started it ends: ZooKeeper ends like that, and to stop cleanly without it would take minutes.
        """
        if self._child is not None:
            # Of a life that ended by itself.
            self._end(signal.SIGKILL)
        with self.log_path.open("ab") as log:
            self._log_starts = log.tell()
            self._child = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "braidlog", "serve", "--until-eof", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(),
                pass_fds=() if lock is None else (lock,),
                preexec_fn=None if lock is None else kill_with_parent,
                # Ctrl-C is for whoever started it, which then ends it in its turn.
                process_group=0,
            )
        self._said = b""

    def wait_until_ready(self) -> int:
        """The port at which clients are served; a broker that does not come so far is killed."""
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            while (port := self.poll_ready(max(0.0, deadline - time.monotonic()))) is None:
                if time.monotonic() >= deadline:
                    raise BrokerFailed(
                        f"{self._name} is not ready after {START_TIMEOUT_S:g} s:\n{self.log(_LOG_LINES)}"
                    )
        except BaseException:
            self.kill()
            raise
        return port

    def poll_ready(self, timeout_s: float) -> int | None:
        """The port once clients are served; None if nothing was said of it yet."""
        child = self._child
        if child is None:
            raise BrokerFailed(f"{self._name} is not running")
        assert child.stdout is not None
        if select.select([child.stdout], [], [], timeout_s)[0]:
            piece = os.read(child.stdout.fileno(), 4096)
            if not piece:
                ended = exit_text(child.wait(STOP_TIMEOUT_S))
                raise BrokerFailed(f"{self._name} did not start ({ended}):\n{self.log(_LOG_LINES)}")
            self._said += piece
        found = _READY.search(self._said)
        return None if found is None else int(found[1])

    @property
    def http_address(self) -> str:
        """Where metrics and health are served; empty if they are not."""
        found = _HTTP.search(self.log_of_this_life())
        return "" if found is None else found[1]

    def stop(self) -> None:
        if self._child is None:
            return
        died = self._child.poll()
        code = self._end(signal.SIGTERM)
        if died is not None:
            raise BrokerFailed(
                f"{self._name} had ended ({exit_text(died)}) before it was asked to stop:\n{self.log(_LOG_LINES)}"
            )
        if code != 0:
            raise BrokerFailed(f"{self._name} did not stop cleanly ({exit_text(code)}):\n{self.log(_LOG_LINES)}")

    def kill(self) -> None:
        if self._child is not None:
            self._end(signal.SIGKILL)

    def pause(self) -> None:
        """It keeps its connections and says nothing, as a stalled machine does."""
        os.kill(self.pid, signal.SIGSTOP)
        # Its threads stop one by one; this returns when the last has.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._paused = True

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self._paused = False

    def _end(self, number: signal.Signals) -> int:
        child, self._child = self._child, None
        assert child is not None
        try:
            child.send_signal(number)
            if self._paused:
                child.send_signal(signal.SIGCONT)
                self._paused = False
            return child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()
        finally:
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None
                pipe.close()

    def log(self, last: int) -> str:
        return last_lines(self.log_path, last)

    def log_of_this_life(self) -> str:
        """All that it has logged since it was started last."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_starts)
            return log.read().decode(errors="replace")


def _environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or not name.startswith(_SETTING_PREFIXES)
    }
    # The child finds the packages that this process has found, however that was set.
    kept["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return kept
