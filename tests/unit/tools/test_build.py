"""The cache of compiled modules: what its key covers, and what becomes of builds that fail or meet."""

from __future__ import annotations

import os
import runpy
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import setuptools
from tools import build, hot

HOT = "src/braidlog/hot.py"
TREE = {
    "src/braidlog/__init__.py": "",
    HOT: "from braidlog.limits import LIMIT\nfrom braidlog import shapes\n\ndef f() -> int:\n    return LIMIT\n",
    "src/braidlog/limits.py": "from typing import Final\n\nLIMIT: Final = 10\n\ndef g() -> int:\n    return 1\n",
    "src/braidlog/shapes.py": (
        "from braidlog.deep import Deep\n\nclass Shape:\n"
        "    def __init__(self) -> None:\n        self.size = 1\n\n"
        "    def area(self) -> int:\n        return self.size\n"
    ),
    "src/braidlog/deep.py": "class Deep:\n    depth: int = 3\n",
    "src/braidlog/elsewhere.py": "from braidlog.hot import f\n\nX = 1\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path, text in TREE.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        pytest.param(HOT, "return LIMIT", "return LIMIT + 1", id="the compiled source"),
        pytest.param("src/braidlog/limits.py", "= 10", "= 11", id="a constant, whose value mypyc copies"),
        pytest.param("src/braidlog/limits.py", "g() -> int", "g() -> object", id="a signature"),
        pytest.param("src/braidlog/shapes.py", "self.size = 1", "self.size = 1.0", id="the type of an attribute"),
        pytest.param("src/braidlog/deep.py", "depth: int", "depth: float", id="a module that only another imports"),
        pytest.param("src/braidlog/__init__.py", "", "X = 1\n", id="the package"),
    ],
)
def test_what_can_change_the_compiled_code_is_in_the_key(tree: Path, path: str, old: str, new: str) -> None:
    before = build.compiled_from(tree, {HOT})
    (tree / path).write_text(TREE[path].replace(old, new))
    assert build.compiled_from(tree, {HOT}) != before


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        pytest.param("src/braidlog/limits.py", "return 1", "return 2", id="the body of an interpreted function"),
        pytest.param("src/braidlog/shapes.py", "return self.size", "return 2 * self.size", id="of a method"),
        pytest.param("src/braidlog/deep.py", "class", "# why\nclass", id="a comment"),
        pytest.param("src/braidlog/elsewhere.py", "X = 1", "X = 2", id="a module that no compiled one imports"),
    ],
)
def test_what_cannot_is_not(tree: Path, path: str, old: str, new: str) -> None:
    before = build.compiled_from(tree, {HOT})
    (tree / path).write_text(TREE[path].replace(old, new))
    assert build.compiled_from(tree, {HOT}) == before


def test_the_key_knows_the_compiler_and_its_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key() -> str:
        build.build_key.cache_clear()
        return build.build_key()

    # They are read anew for every key, and are the same in all of these.
    monkeypatch.setattr(build, "compiled_from", lambda root, hot: {})
    compiler = tmp_path / "mycc"
    compiler.write_text("#!/bin/sh\necho mycc 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", f"{compiler} -pipe")
    first = key()
    assert key() == first
    compiler.write_text("#!/bin/sh\necho mycc 2\n")
    second = key()
    monkeypatch.setenv("CFLAGS", "-O1")
    third = key()
    assert len({first, second, third}) == 3
    build.build_key.cache_clear()


def test_why_a_machine_cannot_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRAIDLOG_PURE", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "mycc -pthread")
    assert "mycc is not on the PATH" in str(build.why_uncompiled())
    (tmp_path / "mycc").write_text("")
    (tmp_path / "mycc").chmod(0o755)
    # A compiler with arguments of its own is a compiler.
    assert build.why_uncompiled() is None
    monkeypatch.setattr(build.sysconfig, "get_path", lambda kind: str(tmp_path))
    assert "python3-dev" in str(build.why_uncompiled())
    monkeypatch.setenv("BRAIDLOG_PURE", "1")
    assert "BRAIDLOG_PURE=1" in str(build.why_uncompiled())


def test_the_same_build_is_compiled_once_also_when_two_ask(tmp_path: Path) -> None:
    compiled: list[Path] = []
    began, may_end = threading.Event(), threading.Event()

    def compile_to(target: Path) -> None:
        compiled.append(target)
        began.set()
        assert may_end.wait(60)
        target.mkdir()

    def ask() -> None:
        build.kept_build(tmp_path, "key", compile_to)

    first = threading.Thread(target=ask)
    first.start()
    assert began.wait(60)
    second = threading.Thread(target=ask)
    second.start()
    may_end.set()
    first.join(60)
    second.join(60)
    assert compiled == [tmp_path / "key"]
    assert build.kept_build(tmp_path, "key", compile_to) == tmp_path / "key"
    assert len(compiled) == 1


def test_a_failed_build_is_tried_again(tmp_path: Path) -> None:
    def fail(target: Path) -> None:
        raise SystemExit("no")

    with pytest.raises(SystemExit):
        build.kept_build(tmp_path, "key", fail)
    assert build.kept_build(tmp_path, "key", lambda target: target.mkdir()).is_dir()


def test_old_builds_are_forgotten_and_used_ones_kept(tmp_path: Path) -> None:
    for number in range(build.KEPT_BUILDS + 2):
        (tmp_path / f"build{number}").mkdir()
        os.utime(tmp_path / f"build{number}", (number, number))
    (tmp_path / ".staging-of-a-killed-build").mkdir()
    os.utime(tmp_path / ".staging-of-a-killed-build", (1, 1))
    (tmp_path / ".staging-of-a-running-build").mkdir()
    os.utime(tmp_path / ".staging-of-a-running-build", (time.time(), time.time()))
    build.kept_build(tmp_path, "build0", lambda target: None)  # uses it
    build.forget_old_builds(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"build0", *(f"build{n}" for n in range(3, build.KEPT_BUILDS + 2)), ".staging-of-a-running-build"}


def test_an_editable_install_notes_what_it_put_beside_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suffix = build.sysconfig.get_config_var("EXT_SUFFIX")
    compiled, source, stamp = tmp_path / "compiled", tmp_path / "src", tmp_path / "build" / "compiled.key"
    for library in (compiled / f"new{suffix}", source / f"stale{suffix}"):
        library.parent.mkdir()
        library.write_text("")
    for name, value in (("SOURCE", source), ("STAMP", stamp), ("compiled_modules", lambda: nullcontext(compiled))):
        monkeypatch.setattr(build, name, value)
    monkeypatch.setattr(hot, "SOURCE", source)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    command = runpy.run_path(str(build.ROOT / "setup.py"))["CompiledModules"](setuptools.Distribution())
    command.inplace = True
    command.ensure_finalized()
    command.run()
    assert [path.name for path in source.iterdir()] == [f"new{suffix}"]
    assert build.is_current_in_place()
    assert command.get_outputs() == [str(source / f"new{suffix}")]


def test_no_cache_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A file in the way refuses even root, whom permissions do not stop.
    (tmp_path / "home").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    assert build.cache_root() is None
    monkeypatch.setattr(build, "compile_into", lambda target: target.mkdir())
    with build.compiled_modules() as place:
        assert place.is_dir()
    assert not place.exists()
