"""The directory of a cluster on this machine: whose it is, what lies where, and that one program at a time uses it.

```
cluster.json              the ZooKeeper that it belongs to, or that it has its own, and how many brokers it has;
                          "version" is the format of the directory, "braidlog" who wrote it last
lock                      held by `braidlog cluster up` and by its brokers; has the pid of the former
zookeeper/1/              zoo.cfg, data and log of a ZooKeeper of its own
broker-0.properties       what broker 0 is started with: `braidlog serve --config broker-0.properties`
broker-0/, broker-0.log   its data and its log
broker-0.pid              its process id, while it runs
```
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from braidlog.core.errors import NewerFormatError, UserError
from braidlog.core.version import VERSION as BRAIDLOG_VERSION
from braidlog.local_cluster.run_lock import RunLock

DEFAULT_BROKERS: Final = 3

_STATE: Final = "cluster.json"
_VERSION: Final = 1
_LOCK: Final = "lock"


class ClusterDirectory:
    """Open, and so nobody else's. `zookeeper` is where the cluster's is, None if it has its own in here.

    `brokers` is how many the cluster has had so far, 0 for a new one.
    """

    def __init__(self, path: Path, zookeeper: str | None, say: Callable[[str], None]) -> None:
        self.path = path
        _refuse_other_files(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = RunLock(path, _LOCK, "braidlog cluster up", say)
        except OSError as problem:
            raise UserError(f"cannot use {path} for a cluster: {problem.strerror}") from problem
        try:
            self.zookeeper, self.brokers = self._recorded(zookeeper)
        except BaseException:
            self.close()
            raise

    @property
    def lock(self) -> int:
        """The descriptor that brokers hold, too."""
        return self._lock.descriptor

    def close(self) -> None:
        self._lock.close()

    def _recorded(self, zookeeper: str | None) -> tuple[str | None, int]:
        state = _state(self.path / _STATE)
        if state is None:
            return zookeeper, 0
        known: str | None = state["zookeeper"]
        if zookeeper is not None and zookeeper != known:
            place = "with a ZooKeeper of its own in it" if known is None else f"on the ZooKeeper at {known}"
            raise UserError(
                f"{self.path} belongs to a cluster {place}, not to one at {zookeeper}: leave out --zookeeper, or "
                "choose another --data"
            )
        return known, int(state["brokers"])

    def record(self, brokers: int) -> None:
        """Remember what the cluster is, before anything of it starts."""
        self.brokers = max(self.brokers, brokers)
        new = self.path / f"{_STATE}.new"
        state = {
            "version": _VERSION,
            "braidlog": BRAIDLOG_VERSION,
            "zookeeper": self.zookeeper,
            "brokers": self.brokers,
        }
        new.write_text(json.dumps(state) + "\n")
        new.replace(self.path / _STATE)

    @property
    def zookeeper_path(self) -> Path:
        return self.path / "zookeeper"

    def data_path(self, broker_id: int) -> Path:
        return self.path / f"broker-{broker_id}"

    def log_path(self, broker_id: int) -> Path:
        return self.path / f"broker-{broker_id}.log"

    def write_pid(self, broker_id: int, pid: int | None) -> None:
        """None where none is running any more."""
        file = self.path / f"broker-{broker_id}.pid"
        if pid is None:
            file.unlink(missing_ok=True)
        else:
            file.write_text(f"{pid}\n")

    def properties_path(self, broker_id: int) -> Path:
        return self.path / f"broker-{broker_id}.properties"

    def write_properties(self, broker_id: int, settings: Mapping[str, str]) -> None:
        """For this user's eyes alone: a password may be among the settings."""
        lines = (f"{key}={_escaped(value)}\n" for key, value in settings.items())
        file = os.open(self.properties_path(broker_id), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(file, "w", encoding="utf-8") as properties:
            os.fchmod(file, 0o600)
            properties.writelines(lines)


def _refuse_other_files(path: Path) -> None:
    """Before anything is written there."""
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is no directory: choose another --data")
    if (path / _STATE).exists():
        return
    if (path / "meta.properties").exists():
        raise UserError(f"{path} is the data directory of a broker: choose another --data for a cluster")
    if path.is_dir() and any(each.name != _LOCK for each in path.iterdir()):
        raise UserError(f"{path} has files that are not a cluster's: choose an empty directory or a new one as --data")


def _state(file: Path) -> dict[str, Any] | None:
    try:
        state = json.loads(file.read_text())
        # A directory from before there were versions is of the first one.
        version = state.get("version", _VERSION)
        if type(version) is int and version > _VERSION:
            raise NewerFormatError(str(file), str(version), str(_VERSION), state.get("braidlog"))
        if isinstance(state["zookeeper"], str | None) and isinstance(state["brokers"], int):
            return dict(state)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise UserError(f"{file} cannot be read: choose another --data, or remove that directory with all its data")


def _escaped(value: str) -> str:
    r"""As a properties file wants it: a backslash, and a blank at the start, would be lost."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n")
    return f"\\{text}" if text[:1] in (" ", "\t") else text
