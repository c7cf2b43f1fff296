"""Java programs of ours, compiled against a peer's jars into the user's cache, and the peers that only they use."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.peers.kafka import TOOL_JVM, java_command, kafka_libs
from tools.peers.maven import Artifact, PeerMissing, cache_root, fetch_classpath

COMPILE_TIMEOUT_S = 120.0
LOGGING = Artifact("org.slf4j", "slf4j-reload4j", "1.7.36")
# The first release line whose client knows transaction version 2 and subscribes by the broker's regular expressions.
NEWER_CLIENT = "4.1.1"


def newer_client_libs() -> Path:
    return fetch_classpath(
        f"kafka-clients-{NEWER_CLIENT}", (Artifact("org.apache.kafka", "kafka-clients", NEWER_CLIENT), LOGGING)
    )


def streams_libs() -> Path:
    return fetch_classpath("kafka-streams-3.9.1", (Artifact("org.apache.kafka", "kafka-streams", "3.9.1"), LOGGING))


def file_connector_libs() -> Path:
    """Connect's file source and sink, to be put beside Kafka's own jars."""
    kafka_libs()
    return fetch_classpath("connect-file-3.9.1", (Artifact("org.apache.kafka", "connect-file", "3.9.1"),))


def mirror_libs() -> Path:
    """MirrorMaker 2 and what it needs at run time."""
    return fetch_classpath("connect-mirror-3.9.1", (Artifact("org.apache.kafka", "connect-mirror", "3.9.1"), LOGGING))


class JavaPrograms:
    """Classes compiled from `sources`, with the jars of `libs` at hand."""

    def __init__(self, libs: Path, sources: Sequence[Path]) -> None:
        self._libs = libs
        self._classes = _compiled(libs, sources)

    def command(self, main_class: str, *arguments: str, jvm: Sequence[str] = TOOL_JVM) -> list[str]:
        classpath = f"{self._classes}{os.pathsep}{self._libs}/*"
        return java_command(main_class, arguments, jvm, "WARN", classpath)


def _compiled(libs: Path, sources: Sequence[Path]) -> Path:
    """The directory of the classes; it appears by a rename once it is whole."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise PeerMissing("no `javac` to compile Java programs")
    digest = hashlib.sha256(str(libs).encode())
    for source in sorted(sources):
        digest.update(source.name.encode() + source.read_bytes())
    place = cache_root() / "java-classes" / digest.hexdigest()[:24]
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="compiling-") as scratch:
        classes = Path(scratch) / "classes"
        done = subprocess.run(
            [compiler, "-nowarn", "-d", str(classes), "-cp", f"{libs}/*", *map(str, sources)],
            capture_output=True,
            text=True,
            timeout=COMPILE_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise RuntimeError(f"javac:\n{done.stdout}{done.stderr}")
        if not place.is_dir():
            classes.rename(place)
    return place
