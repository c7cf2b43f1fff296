"""Compiles the hot modules with mypyc, once for the same sources: `setup.py` and `make build` take them from here.

A build is kept under `$XDG_CACHE_HOME/braidlog/build`, by a key of all that can change it: the compiled sources, what
those can see of the other modules, the interpreter, mypy, librt and the C compiler. So a fresh clone, a wheel and an
sdist of the same sources compile once between them. Where the cache cannot be written, every build compiles anew.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from types import FrameType
from typing import Any

from tools.hot import SOURCE, UNITS, add_docstrings

try:
    import fcntl
except ImportError:  # Windows: two builds of the same sources at once do the work twice.
    fcntl = None  # type: ignore[assignment]

ROOT = SOURCE.parent
STAMP = ROOT / "build" / "compiled.key"
KEPT_BUILDS = 8
# What a build needs of the project, beside `src`.
BUILD_FILES = ("pyproject.toml", "tools/__init__.py", "tools/hot.py", "tools/build.py")


def why_uncompiled() -> str | None:
    """What keeps this machine from compiling, or None."""
    if os.environ.get("BRAIDLOG_PURE") == "1":
        return "BRAIDLOG_PURE=1 is set"
    compiler = compiler_command()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler} is not on the PATH)"
    if not any((Path(sysconfig.get_path(kind)) / "Python.h").exists() for kind in ("include", "platinclude")):
        return "Python's headers are missing (Debian and Ubuntu: install python3-dev)"
    return None


def compiler_command() -> list[str]:
    """What setuptools will call."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shlex.split(command) or ["cc"]


def cache_root() -> Path | None:
    """The directory of kept builds, or None where there can be none."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        root = Path(base) / "braidlog" / "build"
        root.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return root if os.access(root, os.W_OK | os.X_OK) else None


@functools.cache
def build_key() -> str:
    digest = hashlib.sha256()
    for name in ("mypy", "librt"):
        digest.update(f"{name}={importlib.metadata.version(name)};".encode())
    interpreter = (sys.version, sysconfig.get_platform(), sysconfig.get_config_var("EXT_SUFFIX"))
    digest.update(f"{interpreter};{_compiler_version()}".encode())
    for name in ("BRAIDLOG_OPT", "CFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED", "ARCHFLAGS"):
        digest.update(f"{name}={os.environ.get(name)};".encode())
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    digest.update(json.dumps(options, sort_keys=True).encode())
    for path in ("tools/hot.py", "tools/build.py"):
        digest.update(path.encode() + b"\0" + (ROOT / path).read_bytes())
    for path, seen in sorted(compiled_from(ROOT, {path for unit in UNITS.values() for path in unit}).items()):
        digest.update(path.encode() + b"\0" + seen)
    return digest.hexdigest()[:24]


def _compiler_version() -> str:
    command = compiler_command()
    try:
        done = subprocess.run([command[0], "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as problem:
        return f"{command}: {problem}"
    return f"{command}: {done.stdout}"


def compiled_from(root: Path, hot: Set[str]) -> dict[str, bytes]:
    """The compiled sources, and of every module that they import, directly or not, what they can see of it."""
    seen: dict[str, bytes] = {}
    to_read = sorted(hot)
    while to_read:
        path = to_read.pop()
        if path in seen:
            continue
        source = (root / path).read_bytes()
        tree = ast.parse(source)
        to_read += _imported(root, path, tree)
        seen[path] = source if path in hot else ast.dump(_WithoutBodies().visit(tree)).encode()
    return seen


def _imported(root: Path, path: str, tree: ast.Module) -> Iterator[str]:
    """Paths of the modules of ours that a module imports, and of its package."""
    names = [".".join(Path(path).relative_to("src").parent.parts)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    for name in names:
        module = Path("src", *name.split("."))
        for candidate in (module.with_name(f"{module.name}.py"), module / "__init__.py"):
            if (root / candidate).exists():
                yield candidate.as_posix()


class _WithoutBodies(ast.NodeTransformer):
    """Leaves of a module what decides its types and constants as seen from others.

    mypyc copies the values of constants, and the types of functions and attributes decide its conversions. The body of
    a function can matter only where it sets an attribute, whose type may be inferred from it.
    """

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        sets = any(isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) for part in ast.walk(node))
        if not sets:
            node.body = [ast.Pass()]
        return node

    visit_FunctionDef = _function
    visit_AsyncFunctionDef = _function


@contextlib.contextmanager
def compiled_modules() -> Iterator[Path]:
    """A directory laid out as `src`, with the compiled modules of these sources alone."""
    root = cache_root()
    if root is not None:
        yield kept_build(root, build_key(), compile_into)
        return
    with tempfile.TemporaryDirectory(prefix="braidlog-compiled-") as place:
        compile_into(Path(place) / "compiled")
        yield Path(place) / "compiled"


def kept_build(root: Path, key: str, compile_to: Callable[[Path], None]) -> Path:
    """The build of this key, compiled now if it never was; of several processes that ask at once, by the first."""
    kept = root / key
    if not kept.exists():
        with _only_one(root / f".{key}.lock"):
            if not kept.exists():
                compile_to(kept)
                forget_old_builds(root)
    with contextlib.suppress(OSError):
        os.utime(kept)
    return kept


@contextlib.contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """Who comes second waits for the first one's result. The system releases the lock of a build that was killed."""
    with lock.open("w") as held:
        if fcntl is not None:
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def compile_into(target: Path) -> None:
    """Compile in a scratch copy: a build that fails or is killed leaves neither half a build nor stale libraries."""
    count = sum(map(len, UNITS.values()))
    print(f"braidlog: compiling {count} hot modules (once for these sources) …", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="braidlog-build-") as scratch:
        work = Path(scratch)
        (work / "tools").mkdir()
        ignore = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__", "*.egg-info")
        shutil.copytree(SOURCE, work / "src", ignore=ignore)
        for name in BUILD_FILES:
            shutil.copy2(ROOT / name, work / name)
        command = [sys.executable, "-m", "tools.build", "--compile-here"]
        done = subprocess.run(command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            advice = "BRAIDLOG_PURE=1 installs the uncompiled, slower package"
            sys.exit(f"{done.stdout[-8000:]}\nbraidlog: compiling the hot modules failed (see above); {advice}")
        # Beside the target, so that the whole appears at once by a rename.
        staging = Path(tempfile.mkdtemp(prefix=".staging-", dir=target.parent))
        copy_libraries(work / "src", staging)
        try:
            staging.rename(target)
        except OSError:
            shutil.rmtree(staging)
            if not target.exists():  # else somebody else was faster
                raise


def compile_here() -> None:
    """Compile every unit in the current directory's `src`, the largest first so that all cores end together."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    groups: list[tuple[list[str], str | None]] = [(unit, name) for name, unit in UNITS.items()]
    extensions: list[Any] = mypycify(
        ["--strict", *(path for unit in UNITS.values() for path in unit)],
        opt_level=os.environ.get("BRAIDLOG_OPT", "2"),
        debug_level="0",
        separate=groups,
    )
    add_docstrings(path for extension in extensions for path in extension.sources)
    extensions.sort(key=lambda extension: sum(os.path.getsize(path) for path in extension.sources), reverse=True)
    command = build_ext(Distribution({"ext_modules": extensions, "package_dir": {"": "src"}}))
    command.inplace = True
    command.parallel = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    command.ensure_finalized()
    command.run()


def libraries(place: Path) -> list[Path]:
    """The compiled modules of this interpreter below a directory."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    return sorted(place.rglob(f"*{suffix}"))


def copy_libraries(source: Path, target: Path) -> list[Path]:
    copies = []
    for library in libraries(source):
        copy = target / library.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.unlink(missing_ok=True)  # never write into a library that a process has open
        shutil.copy2(library, copy)
        copies.append(copy)
    return copies


def forget_old_builds(root: Path) -> None:
    newest_first = sorted(root.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    builds = [path for path in newest_first if not path.name.startswith(".")]
    yesterday = time.time() - 86_400
    for old in builds[KEPT_BUILDS:]:
        shutil.rmtree(old, ignore_errors=True)
    for old in newest_first:  # locks, and what killed builds left
        if old.name.startswith(".") and old.stat().st_mtime < yesterday:
            shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)


def remove_in_place() -> None:
    """Take the compiled modules out of `src`: stale ones would shadow the sources."""
    STAMP.unlink(missing_ok=True)
    for library in libraries(SOURCE):
        library.unlink()


def install_in_place(compiled: Path) -> None:
    remove_in_place()
    count = len(copy_libraries(compiled, SOURCE))
    STAMP.parent.mkdir(exist_ok=True)
    STAMP.write_text(f"{build_key()} {count}")


def remove_stale() -> None:
    if not is_current_in_place():
        remove_in_place()


def is_current_in_place() -> bool:
    return STAMP.exists() and STAMP.read_text() == f"{build_key()} {len(libraries(SOURCE))}"


def is_kept() -> bool:
    """Whether these sources were compiled before."""
    root = cache_root()
    return root is not None and (root / build_key()).exists()


def _end_on_sigterm(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(128 + signal.SIGTERM)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools.build", description="Compile the hot modules in place.")
    parser.add_argument("--cache-only", action="store_true", help="compile for a later start; change nothing in src")
    parser.add_argument("--compile-here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile_here:
        compile_here()
        return
    signal.signal(signal.SIGTERM, _end_on_sigterm)  # so that the scratch copy is removed
    reason = why_uncompiled()
    if reason is not None:
        print(f"braidlog: not compiling: {reason}; uncompiled, it runs several times slower", file=sys.stderr)
        remove_stale()
    elif options.cache_only:
        with compiled_modules():
            pass
    elif not is_current_in_place():
        with compiled_modules() as compiled:
            install_in_place(compiled)


if __name__ == "__main__":
    main()
