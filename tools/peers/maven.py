"""Jars with everything they need at run time, fetched once from Maven Central into the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FETCH_TIMEOUT_S = 600.0


class PeerMissing(Exception):
    """A peer that is not here and could not be fetched; the text is the reason a skipped test gives."""


class Artifact(NamedTuple):
    group: str
    name: str
    version: str

    def as_dependency(self) -> str:
        return (
            f"<dependency><groupId>{self.group}</groupId><artifactId>{self.name}</artifactId>"
            f"<version>{self.version}</version></dependency>"
        )


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "braidlog"


def fetch_classpath(name: str, artifacts: Sequence[Artifact]) -> Path:
    """The directory `<cache>/<name>/libs` with the artifacts' jars and all that these need at run time.

    The directory appears by a rename once it is whole, so a broken download is never taken for a peer.
    """
    libs = cache_root() / name / "libs"
    if libs.is_dir():
        return libs
    if shutil.which("java") is None:
        raise PeerMissing(f"{name} needs Java (no `java` on the path)")
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerMissing(f"{name} is not in the cache and there is no `mvn` to fetch it")
    libs.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=libs.parent, prefix="fetching-") as scratch:
        work = Path(scratch)
        (work / "pom.xml").write_text(_pom(name, artifacts))
        command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        try:
            done = subprocess.run(
                [*command, f"-DoutputDirectory={work / 'libs'}"],
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=FETCH_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise PeerMissing(f"{name}: fetching it took longer than {FETCH_TIMEOUT_S:.0f} s") from None
        if done.returncode != 0 or not (work / "libs").is_dir():
            last = (done.stdout.strip().splitlines() or ["mvn said nothing"])[0]
            raise PeerMissing(f"{name} could not be fetched: {last[:300]}")
        if not libs.is_dir():
            (work / "libs").rename(libs)
    return libs


def _pom(name: str, artifacts: Sequence[Artifact]) -> str:
    dependencies = "\n".join(artifact.as_dependency() for artifact in artifacts)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>braidlog.peers</groupId><artifactId>{name}</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>\n{dependencies}\n</dependencies></project>\n"
    )
