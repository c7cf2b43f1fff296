"""A real ZooKeeper on loopback, one server or an ensemble, from the jars inside the package pyspark or from Debian's.

    with ZooKeeper(servers=3) as zookeeper:
        ...  # anything, at zookeeper.connect
        zookeeper.servers[0].kill()

Every server is a process of its own that can be stopped, killed, paused and started again on its data. It ends with the
thread that started it, however that ends; so start it in one that stays, as the main thread does.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from braidlog.core.errors import UserError
from braidlog.local_cluster.child_processes import THIS_MACHINE, Machine, exit_text, kill_with_parent, last_lines

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
# Where Debian's package `zookeeper` names its jars.
_DEBIAN: Final = Path("/etc/zookeeper/conf/environment")


class ZooKeeperFailed(Exception):
    """A server did not start or does not answer; the text has its last log lines."""


def zookeeper_missing() -> str:
    """Why no ZooKeeper can be started here; empty if one can."""
    try:
        _java()
        zookeeper_classpath()
    except UserError as problem:
        return str(problem)
    return ""


def _java() -> str:
    from pyspark_braidlog.java import find_java

    return str(find_java(needed_by="ZooKeeper").program)


def zookeeper_classpath(debian: Path = _DEBIAN) -> str:
    spark = find_spec("pyspark")
    if spark is not None and spark.origin is not None:
        jars = Path(spark.origin).parent / "jars"
        found = sorted(str(jar) for jar in jars.glob("*.jar") if jar.name.startswith(_JARS))
        if any("zookeeper-3" in jar for jar in found):
            return os.pathsep.join(found)
    try:
        named = re.search(r'^CLASSPATH="?([^"\n]+)', debian.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        named = None
    if named is None:
        raise UserError(
            "there is no ZooKeeper here: it comes with PySpark (pip install 'braidlog[spark]') or with Debian's "
            "package (apt install zookeeper); or name one that runs, as zookeeper.connect or with --zookeeper HOST:PORT"
        )
    # Its own directory of settings stands first, for a logging that we bring ourselves.
    return os.pathsep.join(part for part in named[1].split(":") if part.endswith(".jar"))


class ZooKeeperServer:
    """One server; `address` is where clients reach it in plain, `secure_address` over TLS where that was asked for."""

    def __init__(self, directory: Path, number: int, jvm: Sequence[str], machine: Machine = THIS_MACHINE) -> None:
        self.number = number
        self.machine = machine
        self._directory = directory
        self._jvm = jvm
        self._child: subprocess.Popen[bytes] | None = None
        self._paused = False
        self.port, self.secure_port, self.quorum_port, self.election_port = lasting_ports(4)

    @property
    def address(self) -> str:
        return f"{self.machine.host}:{self.port}"

    @property
    def secure_address(self) -> str:
        return f"{self.machine.host}:{self.secure_port}"

    @property
    def log_path(self) -> Path:
        return self._directory / "log"

    @property
    def pid(self) -> int:
        if self._child is None:
            raise ZooKeeperFailed(f"ZooKeeper {self.number} is not running")
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and before it was started."""
        return None if self._child is None else self._child.poll()

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
            *self.machine.prefix, _java(), *_JVM, *self._jvm,
            "-Dzookeeper.jmx.log4j.disable=true", f"-Dlog4j2.configurationFile={logging.as_uri()}",
            "-cp", zookeeper_classpath(),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._directory / "zoo.cfg"),
        ]  # fmt: skip
        with self.log_path.open("ab") as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=kill_with_parent,
                # Ctrl-C is for whoever started it, which then ends it in its turn.
                process_group=0,
            )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.serves():
            if self._child is None or self._child.poll() is not None:
                ended = "was not started" if self._child is None else exit_text(self._child.returncode)
                raise ZooKeeperFailed(f"ZooKeeper {self.number} did not start ({ended}):\n{self.log()}")
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
            with socket.create_connection((self.machine.host, self.port), 2.0) as connection:
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
        return last_lines(self.log_path, last)

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

    There are so many `servers`, or one on each of the `machines`.
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
        machines: Sequence[Machine] = (),
    ) -> None:
        self._own_directory = directory is None
        # Whole, since the server itself is told where it is.
        given = tempfile.mkdtemp(prefix="braidlog-zookeeper-") if directory is None else directory
        self._directory = Path(given).absolute()
        if secure:
            jvm = ("-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory", *jvm)
        self.servers = [
            ZooKeeperServer(self._directory / str(number), number, jvm, machine)
            for number, machine in enumerate(machines or [THIS_MACHINE] * servers, start=1)
        ]
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
            "clientPortAddress": server.machine.host,
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
            settings |= {"secureClientPort": str(server.secure_port), "secureClientPortAddress": server.machine.host}
        if len(self.servers) > 1:
            for other in self.servers:
                address = f"{other.machine.host}:{other.quorum_port}:{other.election_port}"
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
