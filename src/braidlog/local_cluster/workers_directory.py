"""The data directories of `braidlog serve --workers`: whose they are, how many workers they have, and what lies where.

```
workers.json            in the first directory: how many workers there are, their broker ids, and which store they use
workers.lock            held by `braidlog serve --workers` and by its processes; has the pid of the former
store/                  the embedded store that they share, and its socket; none on ZooKeeper
worker-0/, worker-1/    in every data directory: what would be a data directory of that broker
```

Nothing is guessed: a directory of a single broker, another number of workers and another kind of store are refused, as
each of them would start a cluster that does not know the partitions that are there.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from braidlog.core.errors import UserError
from braidlog.local_cluster.run_lock import RunLock

VERSION: Final = 1

_STATE: Final = "workers.json"
_LOCK: Final = "workers.lock"
_STORE: Final = "store"
_SOCKET: Final = "store.sock"
_OF_ONE_BROKER: Final = "meta.properties"
_PARTITION: Final = re.compile(r".+-\d+")


class _State(NamedTuple):
    workers: int
    # Of an embedded store, else on ZooKeeper.
    own_store: bool
    # By worker; None where ZooKeeper has yet to give one.
    broker_ids: tuple[int | None, ...]


class WorkersDirectory:
    """Locked, checked and recorded; `say` is told what is waited for."""

    def __init__(
        self,
        log_dirs: Sequence[str],
        workers: int,
        *,
        own_store: bool,
        resize: bool,
        say: Callable[[str], None],
    ) -> None:
        self._log_dirs = [Path(each).absolute() for each in log_dirs]
        self.path = self._log_dirs[0]
        self.workers = workers
        self._own_store = own_store
        self._check_single()
        try:
            for each in self._log_dirs:
                each.mkdir(parents=True, exist_ok=True)
            self._lock = RunLock(self.path, _LOCK, "braidlog serve --workers", say)
        except OSError as problem:
            raise UserError(f"cannot use {self.path} for workers: {problem.strerror}") from problem
        try:
            self.broker_ids = self._agreed(resize)
            self._record()
            if own_store:
                self.store_path.mkdir(mode=0o700, exist_ok=True)
                os.chmod(self.store_path, 0o700)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._lock.close()

    @property
    def lock(self) -> int:
        """The descriptor that its processes hold, too."""
        return self._lock.descriptor

    @property
    def store_path(self) -> Path:
        return self.path / _STORE

    @property
    def socket_path(self) -> Path:
        return self.store_path / _SOCKET

    def data_paths(self, worker: int) -> list[Path]:
        return [each / worker_name(worker) for each in self._log_dirs]

    def record_broker_id(self, worker: int, broker_id: int) -> None:
        """From now on this worker is that broker, also if its directories are lost."""
        if self.broker_ids[worker] != broker_id:
            self.broker_ids[worker] = broker_id
            self._record()

    def _check_single(self) -> None:
        for each in self._log_dirs:
            if (each / _OF_ONE_BROKER).exists():
                raise UserError(
                    f"{each} holds the data of a single broker, which workers would not see: go on with it without "
                    "--workers, or give the workers another --data and copy the topics"
                )

    def _agreed(self, resize: bool) -> list[int | None]:
        """The broker ids so far; raises UserError unless these are the workers that the directory has."""
        state = _read(self.path / _STATE)
        if state is None:
            found = [each for each in self._log_dirs if any(each.glob("worker-*"))]
            if found:
                raise UserError(
                    f"{found[0]} has directories of workers, and {self.path / _STATE} is missing: restore that file, "
                    "or name the data directories in the order in which they were given before"
                )
            return [None] * self.workers
        if state.own_store != self._own_store:
            here = "in a store of their own" if state.own_store else "in ZooKeeper"
            what = "leave out zookeeper.connect" if state.own_store else "set zookeeper.connect as before"
            raise UserError(f"the workers of {self.path} have their cluster {here}: {what}, or choose another --data")
        if state.workers != self.workers:
            self._check_resize(state.workers, resize)
        kept = list(state.broker_ids[: self.workers])
        return kept + [None] * (self.workers - len(kept))

    def _check_resize(self, before: int, resize: bool) -> None:
        have = f"{self.path} has {before} worker{'s' if before > 1 else ''}, not {self.workers}"
        if self.workers > before:
            if not resize:
                raise UserError(
                    f"{have}: say --workers {before}, or add --resize to have {self.workers - before} more, which are "
                    "empty until topics are created or partitions are moved there (braidlog reassign)"
                )
            return
        leaving = range(self.workers, before)
        names = ", ".join(map(worker_name, leaving))
        if not resize:
            raise UserError(
                f"{have}, and what only {names} {'has' if len(leaving) == 1 else 'have'} would be offline: say "
                f"--workers {before}. To have fewer, move their partitions away (braidlog reassign), then add --resize"
            )
        for worker in leaving:
            held = [at for each in self.data_paths(worker) for at in partitions_in(each)]
            if held:
                raise UserError(
                    f"{worker_name(worker)} still has {len(held)} partition{'s' if len(held) > 1 else ''}, such as "
                    f"{held[0]}: start with --workers {before}, move them away (braidlog reassign), and try again"
                )

    def _record(self) -> None:
        """Durable before anything of it starts."""
        state = {
            "version": VERSION,
            "workers": self.workers,
            "store": "embedded" if self._own_store else "zookeeper",
            "broker_ids": self.broker_ids,
        }
        new = self.path / f"{_STATE}.new"
        with new.open("w") as file:
            file.write(json.dumps(state) + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path / _STATE)


def worker_name(worker: int) -> str:
    return f"worker-{worker}"


def partitions_in(directory: Path) -> list[str]:
    """Logs in a data directory; not those that are being deleted, nor those that were set aside."""
    if not directory.is_dir():
        return []
    return sorted(each.name for each in directory.iterdir() if each.is_dir() and _PARTITION.fullmatch(each.name))


def refuse_workers_data(log_dirs: Sequence[str]) -> None:
    """Raises UserError where a single broker is started on what belongs to several."""
    for each in log_dirs:
        state = _read(Path(each) / _STATE)
        if state is not None:
            raise UserError(
                f"{each} holds the data of {state.workers} worker{'s' if state.workers > 1 else ''}, which a single "
                f"broker would not see: say --workers {state.workers}, or choose another --data"
            )


def _read(file: Path) -> _State | None:
    try:
        content: Any = json.loads(file.read_text())
        if content["version"] > VERSION:
            raise UserError(f"{file} was written by a newer braidlog: start that one")
        ids = tuple(None if each is None else int(each) for each in content["broker_ids"])
        return _State(int(content["workers"]), content["store"] == "embedded", ids)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        raise UserError(f"cannot read {file}: {problem.strerror}") from problem
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{file} cannot be read: restore it from a backup, or choose another --data") from None
