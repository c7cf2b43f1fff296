"""Apicurio Registry: a schema registry that also speaks the API of Confluent's, to test against.

It comes from Maven Central into `$XDG_CACHE_HOME/braidlog/apicurio-registry-<version>`, and keeps schemas in memory.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.peers.maven import FETCH_TIMEOUT_S, PeerMissing, cache_root
from tools.peers.process import LoggedProcess

# The last line of 3.x that runs on Java 17.
VERSION = "3.0.9"
_JVM = ("-Xmx384M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def apicurio_home() -> Path:
    """The unpacked program; it appears by a rename once it is whole."""
    home = cache_root() / f"apicurio-registry-{VERSION}"
    if home.is_dir():
        return home
    if shutil.which("java") is None:
        raise PeerMissing("Apicurio Registry needs Java (no `java` on the path)")
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerMissing("Apicurio Registry is not in the cache and there is no `mvn` to fetch it")
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="fetching-") as scratch:
        artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
        try:
            done = subprocess.run(
                [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={scratch}"],
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=FETCH_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise PeerMissing(f"Apicurio Registry: fetching it took longer than {FETCH_TIMEOUT_S:.0f} s") from None
        packed = next(Path(scratch).glob("*.tar.gz"), None)
        if done.returncode != 0 or packed is None:
            said = (done.stdout.strip().splitlines() or ["mvn said nothing"])[0]
            raise PeerMissing(f"Apicurio Registry could not be fetched: {said[:300]}")
        unpacked = Path(scratch) / "home"
        with tarfile.open(packed) as archive:
            archive.extractall(unpacked, filter="data")
        if not home.is_dir():
            unpacked.rename(home)
    return home


@contextmanager
def start_apicurio() -> Iterator[str]:
    """A registry on loopback; yields the address of its Confluent-compatible API."""
    program = next(apicurio_home().glob("*-runner.jar"))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    # It says that it listens only where Quarkus may speak.
    logs = '-Dquarkus.log.category."io.quarkus".level=INFO'
    settings = ("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}", logs)
    with LoggedProcess("apicurio", ["java", *_JVM, *settings, "-jar", str(program)]) as process:
        process.wait_for_line(r"Listening on: http", timeout_s=240.0)
        yield f"http://127.0.0.1:{port}/apis/ccompat/v7"
        process.terminate()
