"""A broker in a thread of this process: the same server as `braidlog serve`, on a loop of its own.

It leaves the process as it is: no signal handlers, no log handlers, no settings of the garbage collector or the
allocator. Its log lines go where the process sends those of the logger `braidlog`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from braidlog.core.errors import BraidlogError
from braidlog.local_cluster.broker_process import START_TIMEOUT_S, STOP_TIMEOUT_S, BrokerFailed

if TYPE_CHECKING:
    from braidlog.broker.server import Server


class BrokerThread:
    def __init__(self, name: str = "braidlog broker") -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None
        self._failure: BaseException | None = None

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, settings: Mapping[str, str]) -> int:
        ready: Future[int] = Future()
        # A daemon, so that a test run that forgot to stop it ends all the same.
        self._thread = threading.Thread(target=self._live, args=(settings, ready), name=self._name, daemon=True)
        self._thread.start()
        try:
            return ready.result(START_TIMEOUT_S)
        except TimeoutError as problem:
            raise BrokerFailed(f"{self._name} is not ready after {START_TIMEOUT_S:g} s") from problem
        except BraidlogError as problem:
            self._thread.join()
            raise BrokerFailed(f"{self._name} did not start: {problem}") from problem

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        loop, server = self._loop, self._server
        if loop is not None and server is not None and thread.is_alive():
            # A loop that a failure has just closed needs no telling.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(server.request_stop)
        thread.join(STOP_TIMEOUT_S)
        if thread.is_alive():
            raise BrokerFailed(f"{self._name} still runs {STOP_TIMEOUT_S:g} s after it was asked to stop")
        failure, self._failure = self._failure, None
        if failure is not None:
            raise BrokerFailed(f"{self._name} failed: {failure}") from failure

    def kill(self) -> None:
        raise BrokerFailed('a thread cannot be killed: use Broker(kind="process") to test what a crash does')

    def log(self, last: int) -> str:
        return ""

    def _live(self, settings: Mapping[str, str], ready: Future[int]) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve(settings, ready))
        except BaseException as problem:
            if ready.done():
                self._failure = problem
            else:
                ready.set_exception(problem)

    async def _serve(self, settings: Mapping[str, str], ready: Future[int]) -> None:
        from braidlog.broker.server import Server
        from braidlog.config.sources import load_settings

        # The environment is the test run's, not this broker's.
        loaded = load_settings(None, {}, [f"{key}={value}" for key, value in settings.items()])
        self._server = server = Server(loaded.settings, loaded.warnings)
        advertised = await server.open()
        self._loop = asyncio.get_running_loop()
        ready.set_result(advertised[0].port)
        await server.serve_until_stopped()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
