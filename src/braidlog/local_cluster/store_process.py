"""The process that serves an embedded store to the workers of a machine; `Workers` starts it before them.

    python -m braidlog.local_cluster.store_process DIRECTORY SOCKET FORMAT LEVEL

It says `ready` on standard output. On SIGTERM, or when its standard input ends, since then nobody is left to start it
again, it ends as soon as no worker is connected any more: whoever stops needs it for that, and all may have been asked
at once. A second SIGTERM ends it now.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Final

from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.journal import CorruptStoreError
from braidlog.cluster.journal_files import OsJournalFiles
from braidlog.cluster.shared_store.store_server import StoreServer
from braidlog.cluster.store import StoreFailedError
from braidlog.config.broker import BrokerSettings
from braidlog.core.clock import SystemClock
from braidlog.core.errors import BraidlogError, FatalError, UserError
from braidlog.logging_setup import set_up_logging

READY: Final = "ready"
NAME: Final = "store"
# As long as a worker may take to stop.
_WORKERS_STOP_S: Final = 60.0


async def serve(directory: str, socket_path: str) -> None:
    """Until a signal, or until the store cannot make anything durable any more."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    stop_now = asyncio.Event()

    def hear() -> None:
        (stop_now if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hear)
    try:
        files = OsJournalFiles(directory)
        store = EmbeddedStore.open(files, SystemClock(), keep_ephemerals=True)
    except (BlockingIOError, CorruptStoreError) as problem:
        raise UserError(str(problem)) from problem
    except OSError as problem:
        raise FatalError(f"cannot open the coordination store in {directory}: {problem}") from problem
    failed: list[StoreFailedError] = []

    def fail(problem: StoreFailedError) -> None:
        failed.append(problem)
        stop.set()
        stop_now.set()

    store.on_failure(fail)
    server = StoreServer(store, files, SystemClock())
    await server.start(socket_path)

    def input_has_come() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stop.set()

    loop.add_reader(0, input_has_come)
    print(READY, flush=True)
    await stop.wait()
    waits = {loop.create_task(server.wait_until_idle(_WORKERS_STOP_S)), loop.create_task(stop_now.wait())}
    _, still = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for each in still:
        each.cancel()
    await server.close()
    await store.close(end_sessions=False)
    if failed:
        raise FatalError(str(failed[0]))


def main(arguments: list[str]) -> int:
    directory, socket_path, log_format, log_level = arguments
    set_up_logging(BrokerSettings({"braidlog.log.format": log_format, "braidlog.log.level": log_level}), process=NAME)
    try:
        asyncio.run(serve(directory, socket_path))
    except BraidlogError as problem:
        print(f"braidlog: {NAME}: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
