"""Builds the compiled modules in place, or takes them from the cache when these very sources were built before.

The key covers the hot sources, this tool, the interpreter, mypy, librt and the C compiler, so a fresh clone of an
unchanged tree starts at once. The cache lives in `$XDG_CACHE_HOME/braidlog/build` and keeps the newest few builds.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from tools.hot import SOURCE, UNITS

ROOT = SOURCE.parent
KEPT_BUILDS = 6


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "braidlog" / "build"


def build_key() -> str:
    digest = hashlib.sha256()
    for name in ("mypy", "librt", "setuptools"):
        digest.update(f"{name}={importlib.metadata.version(name)};".encode())
    digest.update(f"{sys.version};{sysconfig.get_platform()};{os.environ.get('BRAIDLOG_OPT', '2')}".encode())
    # mypyc checks types across modules, so any source may change what a hot module compiles to.
    hot = sorted(path for unit in UNITS.values() for path in unit)
    for path in [*hot, "setup.py", "tools/hot.py", "tools/build.py"]:
        digest.update(path.encode() + b"\0" + (ROOT / path).read_bytes())
    return digest.hexdigest()[:24]


def built_in_place() -> list[Path]:
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    return sorted(SOURCE.rglob(f"*{suffix}"))


def install(cached: Path) -> None:
    for old in built_in_place():
        old.unlink()
    for library in cached.rglob("*.so"):
        target = SOURCE / library.relative_to(cached)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, target)


def compile_into(cached: Path) -> None:
    """Compile in a scratch copy, so that a failed build leaves neither half a build nor stale libraries."""
    with tempfile.TemporaryDirectory(prefix="braidlog-build-") as scratch:
        work = Path(scratch)
        ignore = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
        shutil.copytree(SOURCE, work / "src", ignore=ignore)
        shutil.copytree(ROOT / "tools", work / "tools", ignore=ignore)
        for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
            if (ROOT / name).exists():
                shutil.copy2(ROOT / name, work / name)
        jobs = str(os.cpu_count() or 1)
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "-j", jobs]
        done = subprocess.run(command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{done.stdout[-8000:]}\nbraidlog: compiling the hot modules failed (see above)")
        staging = cached.with_name(cached.name + f".{os.getpid()}")
        for library in (work / "src").rglob("*.so"):
            target = staging / library.relative_to(work / "src")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library, target)
        staging.mkdir(parents=True, exist_ok=True)
        if cached.exists():
            shutil.rmtree(staging)
        else:
            staging.rename(cached)


def forget_old_builds() -> None:
    builds = sorted(cache_root().iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in builds[KEPT_BUILDS:]:
        shutil.rmtree(old, ignore_errors=True)


def main() -> None:
    key = build_key()
    stamp = ROOT / "build" / "compiled.key"
    if stamp.exists() and stamp.read_text() == key and built_in_place():
        return
    cached = cache_root() / key
    if not cached.exists():
        print(f"braidlog: compiling {sum(map(len, UNITS.values()))} hot modules (once for these sources) …", flush=True)
        compile_into(cached)
        forget_old_builds()
    install(cached)
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(key)


if __name__ == "__main__":
    main()
