"""sdist and wheel, each installed in a clean environment, with and without a C compiler, where a broker then serves."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tools import build

from braidlog import __version__
from support.clean_venv import CleanVenv, clean_environment, fresh_tree, pip_cache, run

# Where the cache does not help, it takes as long as compiling does on a busy machine.
pytestmark = [pytest.mark.install, pytest.mark.timeout(1200)]

HAS_COMPILER = build.why_uncompiled() is None


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fresh_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture
def venv(tmp_path: Path) -> CleanVenv:
    return CleanVenv(tmp_path / "venv")


@pytest.fixture(scope="module")
def sdist(tree: Path) -> Path:
    run([sys.executable, "-m", "build", "--no-isolation", "--sdist", str(tree)])
    (made,) = (tree / "dist").glob("*.tar.gz")
    return made


def test_the_sdist_has_what_it_takes_to_build_and_no_more(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE", *build.BUILD_FILES} <= names
    assert {path for unit in build.UNITS.values() for path in unit} <= names
    files = {"setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "PKG-INFO"}
    assert {name.partition("/")[0] for name in names} <= {"", *files, "src", "tools"}
    assert not [name for name in names if name.endswith((".so", ".pyc", ".c"))]


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no C compiler here")
def test_a_wheel_is_compiled_and_serves_without_a_compiler(sdist: Path, venv: CleanVenv, tmp_path: Path) -> None:
    wheel = wheel_of(sdist, tmp_path / "dist", clean_environment())
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.startswith(f"braidlog-{__version__}-{tag}-{tag}-")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names if "__mypyc." not in name} == {
        "braidlog",
        "pyspark_braidlog",
        f"braidlog-{__version__}.dist-info",
    }
    assert sum(name.endswith(".so") for name in names) == len(build.UNITS) + sum(map(len, build.UNITS.values()))
    venv.install(str(wheel), has_compiler=False)
    assert_compiled(venv)


def test_a_wheel_made_without_a_compiler_is_for_any_machine(tree: Path, venv: CleanVenv, tmp_path: Path) -> None:
    """From the tree itself, in which an earlier build has left a module that is gone by now."""
    stale = tree / "build" / "lib" / "braidlog"
    stale.mkdir(parents=True)
    (stale / "gone.py").write_text("")
    wheel = wheel_of(tree, tmp_path / "dist", clean_environment(PATH=str(venv.bin)))
    assert wheel.name == f"braidlog-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith((".so", "gone.py"))]
    venv.install(str(wheel), has_compiler=False)
    assert_uncompiled(venv)


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no C compiler here")
def test_an_sdist_compiles_in_isolation(sdist: Path, venv: CleanVenv) -> None:
    venv.install(str(sdist), has_compiler=True)
    assert_compiled(venv)


def test_an_sdist_without_a_compiler_and_without_a_home(sdist: Path, venv: CleanVenv, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    # A home below a file can never be written to, not even by root.
    home = {"HOME": str(tmp_path / "file" / "home"), "XDG_CACHE_HOME": ""}
    said = venv.install(str(sdist), has_compiler=False, **home, PIP_CACHE_DIR=pip_cache())
    assert "installing the uncompiled, slower package: there is no C compiler" in said
    assert_uncompiled(venv)


def wheel_of(source: Path, target: Path, environment: dict[str, str]) -> Path:
    """Built without isolation: that isolation suffices is what installing the sdist shows."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps"]
    command = [*pip, "--no-build-isolation", "--wheel-dir", str(target), str(source)]
    run(command, cwd=target.parent, env=environment)
    (wheel,) = target.glob("*.whl")
    return wheel


def assert_compiled(venv: CleanVenv) -> None:
    reported = venv.smoke()
    assert reported["braidlog"] == __version__
    assert reported["compiled"] is True
    assert reported["remark"] == ""
    assert "compiled" not in reported["log"]
    assert reported["stopped"] == 0


def assert_uncompiled(venv: CleanVenv) -> None:
    reported = venv.smoke()
    assert reported["compiled"] is False
    assert "running uncompiled, several times slower; to compile, install a C compiler" in reported["remark"]
    assert "running uncompiled, several times slower" in reported["log"]
    assert reported["stopped"] == 0
