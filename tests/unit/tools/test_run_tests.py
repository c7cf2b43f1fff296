"""Few failures are tried again alone, and named; whatever else goes wrong fails the run as pytest alone would."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tools import run_tests
from tools.run_record import Failure, RunRecord
from tools.run_tests import MOST_REPEATED, Run, alone, why_not_repeated

ROOT = Path(__file__).parents[3]
FLAKY = """
    from pathlib import Path
    def test_flaky():
        seen = Path("seen")
        if not seen.exists():
            seen.touch()
            raise ValueError("too slow")
    def test_steady(): pass
"""


def record(*failures: Failure, complete: bool = True) -> RunRecord:
    return RunRecord(complete, ["tests"], list(failures), [])


# What is decided


@pytest.mark.parametrize("exit_code", [0, 2, 3, 4, 5, 137])
def test_only_failed_tests_are_tried_again(exit_code: int) -> None:
    assert why_not_repeated(Run(exit_code, record(Failure("a", "m")))) == ""


def test_a_few_failures_are_tried_again_and_more_are_not() -> None:
    failures = [Failure(f"t{number}", "m") for number in range(MOST_REPEATED + 1)]
    assert why_not_repeated(Run(1, record(*failures[1:]))) is None
    assert why_not_repeated(Run(1, record(*failures))) == "6 tests failed, more than 5: nothing is run again"


def test_one_failure_that_is_final_is_enough() -> None:
    refusal = why_not_repeated(Run(1, record(Failure("a", "m"), Failure("b", "m", "it is marked never_repeated"))))
    assert refusal == "b is not run again: it is marked never_repeated"


def test_a_run_that_died_or_stopped_early_is_not_saved_by_a_second_one() -> None:
    assert why_not_repeated(Run(1, None)) == "the run died; nothing is run again"
    stopped = record(Failure("a", "m"), complete=False)
    assert why_not_repeated(Run(1, stopped)) == "not every test was run; nothing is run again"
    assert why_not_repeated(Run(1, record())) == "the run failed, but no test did; nothing is run again"


def test_the_second_run_has_the_options_of_the_first_but_no_workers() -> None:
    arguments = ["-q", "-n", "5", "-m", "not peer", "--ignore", "tests/unit", "tests"]
    assert alone(arguments, record(Failure("tests/x.py::a", "m"))) == [
        *("-q", "-n", "5", "-m", "not peer", "--ignore", "tests/unit"),
        *("-n", "0", "--dist", "no", "tests/x.py::a"),
    ]


# What is run


class Project:
    """A directory with a test file of its own, and `make test` for it."""

    def __init__(self, path: Path, output: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self._capture = output
        (path / "pytest.ini").write_text("[pytest]\nmarkers = never_repeated\n")

    def run(self, test: str, *options: str) -> tuple[int, str]:
        self.write(test)
        code = run_tests.main(["-q", "-p", "no:cacheprovider", *options, "test_it.py"])
        captured = self._capture.readouterr()
        return code, captured.out + captured.err

    def write(self, test: str) -> None:
        (self.path / "test_it.py").write_text(textwrap.dedent(test))

    @property
    def unsteady(self) -> str:
        kept = self.path / run_tests.UNSTEADY
        return kept.read_text() if kept.exists() else ""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Project:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    # Those of the run that this test is part of.
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    return Project(tmp_path, capfd)


def test_a_run_that_passes_says_nothing_more(project: Project) -> None:
    code, output = project.run("def test_steady(): pass")
    assert (code, project.unsteady) == (0, "")
    assert "run_tests" not in output


def test_a_failure_that_passes_alone_is_named_and_the_run_passes(project: Project) -> None:
    code, output = project.run(FLAKY, "-n", "2")
    line = "unsteady: test_it.py::test_flaky failed with ValueError: too slow, passed alone"
    assert code == 0
    assert "run_tests: 1 test failed; to be run again when no other part runs:\n  test_it.py::test_flaky\n" in output
    assert output.endswith(f"1 passed in {output.rpartition('1 passed in ')[2]}")
    assert output.splitlines()[-1] == line
    assert project.unsteady == f"{line}\n"


def test_what_fails_alone_too_fails_the_run(project: Project) -> None:
    code, output = project.run(f"{FLAKY}    def test_broken(): assert 1 == 2\n")
    assert code == 1
    assert "run_tests: test_it.py::test_broken failed with assert 1 == 2, failed again alone" in output
    assert output.splitlines()[-1].startswith("unsteady: test_it.py::test_flaky")


def test_a_test_that_is_skipped_alone_has_not_passed(project: Project) -> None:
    code, output = project.run(
        """
        import pytest
        from pathlib import Path
        def test_once():
            if Path("seen").exists():
                pytest.skip("no longer")
            Path("seen").touch()
            assert False
        """
    )
    assert code == 1
    assert "did not pass alone" in output


@pytest.mark.parametrize(
    ("test", "options", "code", "said"),
    [
        (
            f"import pytest\npytestmark = pytest.mark.never_repeated\n{textwrap.dedent(FLAKY)}",
            ("-n", "1"),
            1,
            "test_it.py::test_flaky is not run again: it is marked never_repeated",
        ),
        ("import os\ndef test_crash(): os._exit(3)", ("-n", "1"), 1, "is not run again: its process crashed"),
        ("import os\ndef test_crash(): os._exit(1)", (), 1, "the run died; nothing is run again"),
        (FLAKY, ("-x",), 1, "not every test was run; nothing is run again"),
        ("import pytest\ndef test_a(): raise KeyboardInterrupt", (), 2, "KeyboardInterrupt"),
        ("import nothing_of_this_name", (), 2, "No module named 'nothing_of_this_name'"),
        ("import nothing_of_this_name", ("-n", "1"), 1, "not every test was run; nothing is run again"),
        (
            """
            import pytest
            @pytest.fixture(scope="session")
            def broker():
                yield
                assert False, "the broker died"
            def test_a(broker): pass
            """,
            (),
            1,
            "test_it.py::test_a is not run again: what failed is the clean-up",
        ),
    ],
    ids=[
        "never repeated",
        "crash of a worker",
        "crash",
        "stopped early",
        "interrupted",
        "collection",
        "collection by a worker",
        "clean-up",
    ],
)
def test_the_run_fails_at_once(project: Project, test: str, options: tuple[str, ...], code: int, said: str) -> None:
    found, output = project.run(test, *options)
    assert found == code, output
    assert said in output
    assert "to be run again" not in output
    assert project.unsteady == ""


def test_ctrl_c_ends_both_and_leaves_pytest_the_time_to_clean_up(project: Project) -> None:
    project.write(
        """
        import pytest, time
        from pathlib import Path
        @pytest.fixture
        def to_clean_up():
            yield
            Path("cleaned").touch()
        def test_long(to_clean_up):
            print("begun", flush=True)
            time.sleep(600)
        """
    )
    command = [sys.executable, "-m", "tools.run_tests", "-q", "-s", "-p", "no:cacheprovider", "test_it.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as running:
        assert running.stdout is not None
        while "begun" not in (line := running.stdout.readline()):
            assert line, "it ended before its test began"
        # To all in the foreground, as a terminal does it.
        os.killpg(running.pid, signal.SIGINT)
        rest = running.stdout.read()
        assert running.wait(60) == 2, rest
    assert "KeyboardInterrupt" in rest
    assert (project.path / "cleaned").exists()


def test_a_second_run_waits_for_the_other_parts(project: Project) -> None:
    project.write(FLAKY)
    (project.path / "build").mkdir()
    command = [sys.executable, "-m", "tools.run_tests", "-q", "-p", "no:cacheprovider", "test_it.py"]
    with (project.path / run_tests.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            while "to be run again" not in (line := running.stdout.readline()):
                assert line, "it ended without a second run"
            assert running.stdout.readline() == "  test_it.py::test_flaky\n"
            assert running.poll() is None
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert "passed alone" in running.stdout.read()
            assert running.wait(60) == 0
