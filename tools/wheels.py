"""A source distribution, and a compiled wheel for each supported Python that this machine has: `make wheels`.

Each wheel is installed in a clean environment, where a broker has to serve from it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


class NoWheel(Exception):
    """Why there is no wheel that works."""


def find_python(version: str) -> str | None:
    """An interpreter of that version: on the PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    newest_first = sorted(pyenv.glob(f"{version}.*"), key=lambda path: path.name, reverse=True)
    for candidate in (shutil.which(f"python{version}"), *(str(path / "bin" / "python") for path in newest_first)):
        if candidate is not None and _version_of(candidate) == version:
            return candidate
    return None


def _version_of(python: str) -> str | None:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        # pyenv's shims exist for versions that are not there.
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def build_wheel(python: str, target: Path) -> Path:
    """A compiled wheel, built as pip builds it for everyone: in isolation."""
    with tempfile.TemporaryDirectory() as scratch:
        here = _venv(python, Path(scratch) / "venv")
        made = Path(scratch) / "made"
        _pip(here, "wheel", "--no-deps", "--wheel-dir", str(made), str(ROOT))
        (wheel,) = made.glob("*.whl")
        check_contents(wheel)
        target.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy2(wheel, target / wheel.name))


def check_contents(wheel: Path) -> None:
    if wheel.name.endswith("-none-any.whl"):
        raise NoWheel(f"{wheel.name} is not compiled")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    roots = ("braidlog/", "pyspark_braidlog/", "braidlog-")
    strays = [name for name in names if not (name.startswith(roots) or "__mypyc." in name)]
    if strays:
        raise NoWheel(f"{wheel.name} holds what does not belong there: {', '.join(strays)}")


def try_wheel(python: str, wheel: Path) -> None:
    """Install it where nothing can be compiled, and let a broker serve from it."""
    with tempfile.TemporaryDirectory() as scratch:
        here = _venv(python, Path(scratch) / "venv")
        _pip(here, "install", "--only-binary", ":all:", str(wheel))
        done = subprocess.run([here, "-I", str(ROOT / "tools" / "smoke.py")], capture_output=True, text=True)
        if done.returncode != 0 or not json.loads(done.stdout)["compiled"]:
            raise NoWheel(f"a broker does not serve from {wheel.name}:\n{done.stdout}{done.stderr}")


def _venv(python: str, place: Path) -> str:
    subprocess.run([python, "-m", "venv", str(place)], check=True)
    return str(place / "bin" / "python")


def _pip(python: str, *words: str) -> None:
    command = [python, "-m", "pip", "--disable-pip-version-check", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise NoWheel(f"{' '.join(words)} failed:\n{done.stdout[-4000:]}")


def build_sdist(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(target)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools.wheels", description=__doc__)
    parser.add_argument("versions", nargs="*", default=PYTHONS, help="all supported ones unless given")
    parser.add_argument("--outdir", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    build_sdist(options.outdir)
    failed = False
    for version in options.versions:
        python = find_python(version)
        if python is None:
            print(f"Python {version}: not on this machine (neither on the PATH nor in pyenv), no wheel", flush=True)
            continue
        try:
            wheel = build_wheel(python, options.outdir)
            try_wheel(python, wheel)
        except NoWheel as problem:
            failed = True
            print(f"Python {version}: {problem}", flush=True)
        else:
            print(f"Python {version}: {wheel.name}, installed and served", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
