"""A real ZooKeeper on loopback, one server or an ensemble, from the jars inside the package pyspark.

    with ZooKeeper(servers=3) as zookeeper:
        ...  # anything, at zookeeper.connect
        zookeeper.servers[0].kill()

Every server is a process of its own that can be stopped, killed, paused and started again on its data. It ends with the
thread that started it, however that ends; so start it in one that stays, as the main thread does.
"""

from __future__ import annotations

import ctypes
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from braidlog.core.errors import UserError

# A server is ready in one or two seconds; a machine that is busy with other tests may take many times that.
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 20.0
# Short, as sessions last two ticks at least and are ended at the next one.
TICK_MS: Final = 500

_JARS: Final = (
    "zookeeper-", "slf4j-api-", "log4j-api-", "log4j-core-", "log4j-slf4j2-impl-", "metrics-core-", "netty-",
    "snappy-java-", "audience-annotations-", "commons-cli-", "commons-io-", "commons-lang3-",
)  # fmt: skip
# A small heap and the quick compiler: what matters is to be there soon.
_JVM: Final = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOGGING: Final = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m%n
"""
_POLL_S: Final = 0.02
_SET_PARENT_DEATH_SIGNAL: Final = 1
# Looked up before any fork; elsewhere than on Linux there is no such thing.
_PRCTL: Final = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None


class ZooKeeperFailed(Exception):
    """A server did not start or does not answer; the text has its last log lines."""


def zookeeper_missing() -> str:
    """Why no ZooKeeper can be started here; empty if one can."""
    try:
        _java()
        _classpath()
    except UserError as problem:
        return str(problem)
    return ""


def _java() -> str:
    from pyspark_braidlog.java import find_java

    return str(find_java().program)


def _classpath() -> str:
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise UserError("ZooKeeper comes with PySpark, which is not installed: pip install 'braidlog[spark]'")
    jars = Path(spark.origin).parent / "jars"
    found = sorted(str(jar) for jar in jars.glob("*.jar") if jar.name.startswith(_JARS))
    if not any("zookeeper-3" in jar for jar in found):
        raise UserError(f"there is no ZooKeeper among the jars of PySpark in {jars}")
    return os.pathsep.join(found)


def _die_with_parent() -> None:
    """In the child, before its program: whoever started it may be killed, and must not leave it behind."""
    if _PRCTL is not None:
        _PRCTL(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


class ZooKeeperServer:
    """One server; `address` is where clients reach it in plain, `secure_address` over TLS where that was asked for."""

    def __init__(self, directory: Path, number: int, jvm: Sequence[str]) -> None:
        self.number = number
        self._directory = directory
        self._jvm = jvm
        self._child: subprocess.Popen[bytes] | None = None
        self._paused = False
        self.port, self.secure_port, self.quorum_port, self.election_port = lasting_ports(4)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def secure_address(self) -> str:
        return f"127.0.0.1:{self.secure_port}"

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Returns at once; `wait_until_ready` waits."""
        if self.is_running:
            return
        logging = self._directory / "log4j2.properties"
        logging.write_text(_LOGGING)
        command = [
            _java(), *_JVM, *self._jvm,
            "-Dzookeeper.jmx.log4j.disable=true", f"-Dlog4j2.configurationFile={logging.as_uri()}",
            "-cp", _classpath(), "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._directory / "zoo.cfg"),
        ]  # fmt: skip
        with (self._directory / "log").open("ab") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, preexec_fn=_die_with_parent
            )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.serves():
            if not self.is_running:
                raise ZooKeeperFailed(f"ZooKeeper {self.number} did not start:\n{self.log()}")
            if time.monotonic() > deadline:
                raise ZooKeeperFailed(f"ZooKeeper {self.number} is not ready:\n{self.log()}")
            time.sleep(_POLL_S)

    def serves(self) -> bool:
        return bool(self.mode())

    def mode(self) -> str:
        """standalone, leader or follower; empty while it does not serve."""
        found = re.search(r"^Mode: (\w+)", self.ask("srvr"), re.MULTILINE)
        return found[1] if found is not None else ""

    def ask(self, word: str) -> str:
        """The answer to one of ZooKeeper's four-letter words; empty if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2.0) as connection:
                connection.sendall(word.encode())
                parts = []
                while part := connection.recv(65536):
                    parts.append(part)
        except OSError:
            return ""
        return b"".join(parts).decode(errors="replace")

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """It keeps its connections and says nothing, as a stalled machine does."""
        child = self._signal(signal.SIGSTOP)
        # Its threads stop one by one; this returns when the last has.
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self._paused = False

    def log(self, last: int = 40) -> str:
        try:
            lines = (self._directory / "log").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return "\n".join(lines[-last:])

    def _signal(self, number: signal.Signals) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            raise ZooKeeperFailed(f"ZooKeeper {self.number} is not running")
        self._child.send_signal(number)
        return self._child

    def _end(self, number: signal.Signals) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.send_signal(number)
        if self._paused:
            child.send_signal(signal.SIGCONT)
            self._paused = False
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


class ZooKeeper:
    """`properties` go into every server's zoo.cfg, `jvm` on its command line.

    With `secure` a server's `secure_port` speaks TLS; `properties` then name the key and trust stores.
    """

    def __init__(
        self,
        servers: int = 1,
        directory: Path | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (),
        secure: bool = False,
    ) -> None:
        self._own_directory = directory is None
        self._directory = Path(tempfile.mkdtemp(prefix="braidlog-zookeeper-")) if directory is None else directory
        if secure:
            jvm = ("-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory", *jvm)
        self.servers = [ZooKeeperServer(self._directory / str(number), number, jvm) for number in range(1, servers + 1)]
        for server in self.servers:
            self._write(server, dict(properties or {}), secure)

    def _write(self, server: ZooKeeperServer, properties: dict[str, str], secure: bool) -> None:
        place = self._directory / str(server.number)
        data = place / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(str(server.number))
        settings = {
            "dataDir": str(data),
            "clientPort": str(server.port),
            "clientPortAddress": "127.0.0.1",
            "tickTime": str(TICK_MS),
            # Twenty ticks would be the longest, too little for a busy machine.
            "maxSessionTimeout": "60000",
            "initLimit": "40",
            "syncLimit": "20",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            # Nothing here is to outlive a power failure.
            "forceSync": "no",
        }
        if secure:
            settings |= {"secureClientPort": str(server.secure_port), "secureClientPortAddress": "127.0.0.1"}
        if len(self.servers) > 1:
            for other in self.servers:
                address = f"127.0.0.1:{other.quorum_port}:{other.election_port}"
                settings[f"server.{other.number}"] = address
        settings |= properties
        (place / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    @property
    def connect(self) -> str:
        """For `zookeeper.connect`, without a chroot."""
        return ",".join(server.address for server in self.servers)

    @property
    def secure_connect(self) -> str:
        return ",".join(server.secure_address for server in self.servers)

    def start(self) -> None:
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.wait_until_ready()

    def stop(self) -> None:
        """Nobody waits for a graceful end: nothing depends on it."""
        for server in self.servers:
            server.kill()

    def each(self, act: Callable[[ZooKeeperServer], None]) -> None:
        """`zookeeper.each(ZooKeeperServer.pause)`: the whole ensemble at once."""
        for server in self.servers:
            act(server)

    def leader(self) -> ZooKeeperServer:
        """The server through which changes go; a lone server is its own."""
        for server in self.servers:
            if server.mode() in ("leader", "standalone"):
                return server
        raise ZooKeeperFailed("no ZooKeeper server leads")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._own_directory:
            shutil.rmtree(self._directory, ignore_errors=True)


def lasting_ports(count: int) -> list[int]:
    """Free ones, below the range from which the system takes the ports of outgoing connections.

    In that range a client that knocks at a dead server's port may be given that very port, and answer itself.
    """
    chooser = random.Random(os.urandom(8))
    found: list[int] = []
    while len(found) < count:
        port = chooser.randrange(14_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            if port not in found:
                found.append(port)
    return found
