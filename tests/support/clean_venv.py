"""Clean environments to install into; every install is a process of its own, as a user would start it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Variables that would change what runs or where it is looked for. The level of optimisation stays: what was compiled
# for the tests is then taken from the cache.
_OURS = ("BRAIDLOG_", "KAFKA_", "PYTHONPATH", "VIRTUAL_ENV", "MAKE", "MFLAGS", "PYTEST_")
_KEPT = "BRAIDLOG_OPT"


def clean_environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name == _KEPT or not name.startswith(_OURS)}
    # pip would compile all that it installs, of which little is ever imported here.
    return {**kept, "PIP_NO_COMPILE": "1", **changes}


def run(command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Its output; a failure is told with it."""
    environment = clean_environment() if env is None else env
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-8000:]}"
    return done.stdout


def pip_cache() -> str:
    """pip's own, for runs in which it would look for it elsewhere."""
    return run([sys.executable, "-m", "pip", "cache", "dir"]).strip()


def fresh_tree(place: Path) -> Path:
    """What a clone of this tree would hold: its tracked files, as they are now."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    return place


class CleanVenv:
    """An environment with nothing in it, or with the pip that came with the interpreter, which takes seconds to unpack.

    Without its own, this environment's pip installs into it, which is the same one.
    """

    def __init__(self, place: Path, *, has_pip: bool = False) -> None:
        run([sys.executable, "-m", "venv", *([] if has_pip else ["--without-pip"]), str(place)])
        self.bin = place / "bin"

    def environment(self, has_compiler: bool) -> dict[str, str]:
        if has_compiler:
            return clean_environment()
        return clean_environment(PATH=str(self.bin))

    def install(self, *what: str, has_compiler: bool, **variables: str) -> str:
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "--disable-pip-version-check"]
        command = [*pip, "install", "-v", *what]
        # Not in this tree, whose packages would be found in the current directory.
        return run(command, cwd=self.bin, env={**self.environment(has_compiler), **variables})

    def smoke(self) -> dict[str, Any]:
        """A broker serves, records go in and come out, and it stops; what `version` and the log have said."""
        command = [str(self.bin / "python"), "-I", str(ROOT / "tools" / "smoke.py")]
        # Its own streams apart: the last line is the report.
        done = subprocess.run(
            command, cwd=self.bin, env=self.environment(False), capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stdout + done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report
