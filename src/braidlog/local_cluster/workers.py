"""Several brokers of one cluster on this machine, a process each, for as long as somebody wants them: one a core.

    start    the store's process first, where they share one; then all workers at once. One that does not come up at the
             first start ends the whole, since its settings are wrong
    run      a process that ends is started again, after a wait that doubles while it keeps ending. The store's process
             is back before anybody's lease is over
    stop     workers one after the other, each with a controlled shutdown, then the store. A second signal kills

It runs in the main thread. Should this process be killed, the others see the end of their standard input, and stop.
"""

from __future__ import annotations

import logging
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Final

from braidlog.config.broker import BrokerSettings
from braidlog.core.errors import UserError
from braidlog.local_cluster import store_process
from braidlog.local_cluster.child_processes import exit_text
from braidlog.local_cluster.worker_settings import (
    WorkerPlace,
    check_workers,
    first_broker_id,
    http_port_of,
    with_lasting_ports,
    worker_settings,
)
from braidlog.local_cluster.workers_directory import WorkersDirectory, worker_name
from braidlog.local_cluster.zookeeper import lasting_ports

# The variable that names a process in its own log lines.
WORKER: Final = "BRAIDLOG_WORKER"
MOST_WORKERS: Final = 100

# Who takes longer to start, as brokers with logs to recover do, is mentioned this often.
_SAY_AFTER_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 60.0
_END_TIMEOUT_S: Final = 10.0
_READY: Final = re.compile(rb"braidlog broker (\d+) is ready on (.+?) after [^\n]*\(cluster ([^,\n]+)")
_MOST_SAID: Final = 64 * 1024
# Back-off of processes that end: the store's is short, since leases run meanwhile.
_WORKER_WAITS_S: Final = (0.5, 30.0)
_STORE_WAITS_S: Final = (0.05, 2.0)
# Who has served for so long begins with the shortest wait again.
_WELL_S: Final = 30.0
_LOOK_S: Final = 1.0

_log = logging.getLogger("braidlog.workers")


class BackOff:
    """How long to wait before the next start of something that keeps ending."""

    def __init__(self, shortest_s: float, longest_s: float) -> None:
        self._shortest_s = shortest_s
        self._longest_s = longest_s
        self._next_s = shortest_s

    def after(self, ran_s: float) -> float:
        """It has ended after so long."""
        if ran_s >= _WELL_S:
            self._next_s = self._shortest_s
        wait_s, self._next_s = self._next_s, min(self._next_s * 2, self._longest_s)
        return wait_s


class SupervisedProcess:
    """A process that is started again when it ends. `ready` finds in what it prints that it is."""

    def __init__(
        self, name: str, command: Sequence[str], lock: int, ready: Callable[[bytes], bool], back_off: BackOff
    ) -> None:
        self.name = name
        self._command = command
        self._lock = lock
        self._ready = ready
        self._back_off = back_off
        self._child: subprocess.Popen[bytes] | None = None
        self._said = b""
        self._began = 0.0
        self.is_ready = False
        # When to start it again; None while it runs.
        self.start_at: float | None = None

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and before it was started."""
        return None if self._child is None else self._child.poll()

    @property
    def output(self) -> int | None:
        """What to wait for, until it is ready."""
        child = self._child
        return None if child is None or child.stdout is None or child.stdout.closed else child.stdout.fileno()

    def start(self) -> None:
        self.start_at = None
        self.is_ready = False
        self._said = b""
        self._began = time.monotonic()
        self._child = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, WORKER: self.name},
            pass_fds=(self._lock,),
            # Ctrl-C is for whoever started it, which then ends it in its turn.
            process_group=0,
        )

    def read(self) -> None:
        """What it has printed; only up to the line that says that it is ready."""
        child = self._child
        assert child is not None
        assert child.stdout is not None
        piece = os.read(child.stdout.fileno(), 4096)
        if not piece:
            child.stdout.close()
            return
        if not self.is_ready:
            self._said = (self._said + piece)[-_MOST_SAID:]
            self.is_ready = self._ready(self._said)

    def plan_restart(self) -> float:
        """It has ended; returns how long it is waited."""
        wait_s = self._back_off.after(time.monotonic() - self._began)
        self._close_pipes()
        self._child = None
        self.is_ready = False
        self.start_at = time.monotonic() + wait_s
        return wait_s

    def ask_to_stop(self) -> None:
        if self._child is not None:
            self._child.terminate()

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._close_pipes()

    def _close_pipes(self) -> None:
        assert self._child is not None
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            pipe.close()


class Workers:
    """`arguments` are those of `braidlog serve` that all workers share; `settings` is what they come to."""

    def __init__(
        self,
        directory: WorkersDirectory,
        settings: BrokerSettings,
        arguments: Sequence[str],
        memory_max: int,
        *,
        own_store: bool,
    ) -> None:
        self._directory = directory
        self._began = time.monotonic()
        self._addresses: dict[int, str] = {}
        self._cluster_id = ""
        self._store = self._store_of(directory, settings) if own_store else None
        self._workers = [
            self._worker(worker, settings, arguments, memory_max, own_store=own_store)
            for worker in range(directory.workers)
        ]
        self._selector = selectors.DefaultSelector()
        # A signal wakes whoever waits: both handlers and SIGCHLD write a byte here.
        self._wakes, self._woken = socket.socketpair()
        self._wakes.setblocking(False)
        self._woken.setblocking(False)
        self._signals = 0

    def _store_of(self, directory: WorkersDirectory, settings: BrokerSettings) -> SupervisedProcess:
        command = [
            sys.executable, "-m", store_process.__name__, str(directory.store_path), str(directory.socket_path),
            settings.get_str("braidlog.log.format"), settings.get_str("braidlog.log.level"),
        ]  # fmt: skip
        ready = f"{store_process.READY}\n".encode()
        return SupervisedProcess(
            store_process.NAME, command, directory.lock, lambda said: said.endswith(ready), BackOff(*_STORE_WAITS_S)
        )

    def _worker(
        self, worker: int, settings: BrokerSettings, arguments: Sequence[str], memory_max: int, *, own_store: bool
    ) -> SupervisedProcess:
        directory = self._directory
        first_id = first_broker_id(settings, own_store=own_store)
        place = WorkerPlace(
            worker,
            [str(each) for each in directory.data_paths(worker)],
            directory.broker_ids[worker] if first_id is None else first_id + worker,
            str(directory.socket_path) if own_store else None,
        )
        own = worker_settings(
            settings,
            place,
            directory.workers,
            socket.gethostname(),
            memory_max,
            http_is_free=_is_free(http_port_of(settings, worker)),
        )
        command = [sys.executable, "-m", "braidlog", "serve", "--until-eof", *arguments]
        for key, value in own.items():
            command += ["--set", f"{key}={value}"]
        return SupervisedProcess(
            worker_name(worker),
            command,
            directory.lock,
            lambda said: self._is_worker_ready(worker, said),
            BackOff(*_WORKER_WAITS_S),
        )

    def _is_worker_ready(self, worker: int, said: bytes) -> bool:
        found = _READY.search(said)
        if found is None:
            return False
        broker_id, addresses, cluster_id = int(found[1]), found[2].decode(), found[3].decode()
        self._addresses[worker] = addresses
        self._cluster_id = cluster_id
        self._directory.record_broker_id(worker, broker_id)
        pid = self._workers[worker].pid
        _log.info("%s is broker %d, pid %d, ready on %s", worker_name(worker), broker_id, pid, addresses)
        return True

    @property
    def _all(self) -> list[SupervisedProcess]:
        return [*self._workers, *([] if self._store is None else [self._store])]

    def run(self) -> int:
        """Until a signal asks to stop; the exit code."""
        before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        wakeup = signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._wakes, selectors.EVENT_READ)
        try:
            if self._start():
                self._announce()
                self._supervise()
            return self._stop()
        except BaseException:
            self._end_all()
            raise
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            self._wakes.close()
            self._woken.close()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    # Start

    def _start(self) -> bool:
        """False where a signal has come meanwhile. Raises UserError where something does not start."""
        if self._store is not None:
            self._start_all([self._store])
            _log.info("the store is served at %s, pid %d", self._directory.socket_path, self._store.pid)
        if not self._signals:
            self._start_all(self._workers)
        return not self._signals

    def _start_all(self, processes: Sequence[SupervisedProcess]) -> None:
        for each in processes:
            each.start()
            self._follow(each)
        say_at = time.monotonic() + _SAY_AFTER_S
        while not self._signals and not all(each.is_ready for each in processes):
            self._wait(_LOOK_S)
            for each in self._all:
                code = each.exit_code
                if code is not None:
                    raise UserError(f"{each.name} has not started ({exit_text(code)}); the lines above say why")
            if time.monotonic() > say_at:
                say_at += _SAY_AFTER_S
                _log.warning("still starting: %s", ", ".join(each.name for each in processes if not each.is_ready))

    def _announce(self) -> None:
        where = ", ".join(self._addresses[worker] for worker in sorted(self._addresses))
        took = time.monotonic() - self._began
        count = len(self._workers)
        with suppress(OSError):
            # Clients are served, also if nobody reads the line.
            print(
                f"braidlog: {count} worker{'s are' if count > 1 else ' is'} ready on {where} after {took:.2f} s "
                f"(cluster {self._cluster_id})",
                flush=True,
            )

    # Run

    def _supervise(self) -> None:
        while not self._signals:
            now = time.monotonic()
            starts = [each.start_at - now for each in self._all if each.start_at is not None]
            self._wait(min([_LOOK_S, *(max(0.0, each) for each in starts)]))
            if not self._signals:
                self._restart_ended(self._all)

    def _restart_ended(self, processes: Sequence[SupervisedProcess]) -> None:
        for each in processes:
            code = each.exit_code
            if code is not None:
                pid = each.pid
                self._unfollow(each)
                wait_s = each.plan_restart()
                _log.error(
                    "%s (pid %d) has ended: %s. It is started again in %g s", each.name, pid, exit_text(code), wait_s
                )
            if each.start_at is not None and each.start_at <= time.monotonic():
                each.start()
                self._follow(each)
                _log.info("%s is started again, pid %d", each.name, each.pid)

    def _follow(self, process: SupervisedProcess) -> None:
        output = process.output
        assert output is not None
        self._selector.register(output, selectors.EVENT_READ, process)

    def _unfollow(self, process: SupervisedProcess) -> None:
        output = process.output
        if output is not None:
            self._selector.unregister(output)

    def _wait(self, timeout_s: float) -> None:
        """Until something is printed, ends or is asked for, but not for longer than that."""
        for key, _ in self._selector.select(timeout_s):
            process = key.data
            if process is None:
                with suppress(BlockingIOError):
                    self._wakes.recv(4096)
                continue
            descriptor = key.fd
            process.read()
            if process.output is None:
                self._selector.unregister(descriptor)

    # Stop

    def _end_all(self) -> None:
        """Something went wrong: nobody is waited for in vain."""
        workers = [each for each in self._workers if each.exit_code is None]
        if not self._signals:
            for each in workers:
                each.ask_to_stop()
            deadline = time.monotonic() + _END_TIMEOUT_S
            while not self._signals and any(each.pid is not None and each.exit_code is None for each in workers):
                if time.monotonic() > deadline:
                    break
                self._wait(_LOOK_S)
        for each in self._all:
            each.kill()

    def _stop(self) -> int:
        """All, in order; 1 where one did not end well."""
        count = len(self._workers)
        _log.info("stopping %d worker%s, one after the other", count, "s" if count > 1 else "")
        asked = self._signals
        failed: list[str] = []
        for each in [*reversed(self._workers), *([] if self._store is None else [self._store])]:
            if each.pid is None:
                continue
            each.ask_to_stop()
            deadline = time.monotonic() + _STOP_TIMEOUT_S
            while each.exit_code is None:
                if self._signals > asked or time.monotonic() > deadline:
                    why = "a second signal came" if self._signals > asked else f"{each.name} does not stop"
                    _log.error("killing what still runs: %s", why)
                    raise UserError(f"not stopped cleanly: {why}")
                self._wait(_LOOK_S)
                if self._store is not None and each is not self._store:
                    # Workers need it to stop.
                    self._restart_ended([self._store])
            code = each.exit_code
            if code != 0:
                failed.append(f"{each.name} ({exit_text(code)})")
        if failed:
            raise UserError(f"not everything ended as it should: {', '.join(failed)}")
        _log.info("stopped")
        return 0


def _free_ports(count: int) -> int:
    """The first of so many in a row."""
    while True:
        (first,) = lasting_ports(1)
        if all(map(_is_free, range(first, first + count))):
            return first


def _is_free(port: int) -> bool:
    """Whether a port on the loopback interface can be had now."""
    if not port:
        return True
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def run_workers(settings: BrokerSettings, arguments: Sequence[str], count: int, *, resize: bool) -> int:
    """`braidlog serve --workers COUNT`, with these other arguments."""
    # Only for what a broker would take by itself.
    from braidlog.broker.environment import memory_of_this_process
    from braidlog.net.memory import default_memory_max

    settings = with_lasting_ports(settings, lambda: _free_ports(count))
    check_workers(settings, count)
    own_store = not settings.get_str("zookeeper.connect")
    directory = WorkersDirectory(
        settings.log_dirs, count, own_store=own_store, resize=resize, say=lambda line: _log.warning("%s", line)
    )
    try:
        memory_max = default_memory_max(memory_of_this_process() // count)
        return Workers(directory, settings, arguments, memory_max, own_store=own_store).run()
    finally:
        directory.close()
