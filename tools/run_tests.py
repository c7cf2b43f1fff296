"""`python -m tools.run_tests <arguments of pytest>`: a run of pytest whose few failures are tried again, alone.

A run of thousands of tests on a busy machine should not be lost to one that waited too briefly. If at most
MOST_REPEATED tests fail, each is run once more, in one process, after every other part of `make test` that is under way
has ended. What passes then is named as unsteady, a defect to be mended, and the run passes; what fails again fails it.

Nothing is repeated, and the run fails at once, if the meaning of a failure must not be shrugged off
(`run_record.why_final`): a test marked `never_repeated`, a clean-up that failed, a process that crashed; nor after a
run that did not run everything: a file that cannot be collected, Ctrl-C, `-x`.
"""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from tools.run_record import Failure, RunRecord

MOST_REPEATED = 5

# Below the directory that tests are run in. `make test` prints the second when all parts are done.
LOCK = Path("build/run-tests.lock")
UNSTEADY = Path("build/unsteady-tests.txt")

PASSED = 0
FAILED = 1


class Run(NamedTuple):
    exit_code: int
    record: RunRecord | None


def main(arguments: Sequence[str]) -> int:
    LOCK.parent.mkdir(exist_ok=True)
    with _beside_others():
        first = _run(arguments)
    refusal = why_not_repeated(first)
    if refusal is not None:
        if refusal:
            _say(refusal)
        return first.exit_code
    assert first.record is not None
    failures = first.record.failures
    _say(f"{_count(failures)} failed; to be run again when no other part runs:")
    for failure in failures:
        print(f"  {failure.test}", flush=True)
    with _alone():
        second = _run(alone(arguments, first.record))
    return _judge(failures, second)


def why_not_repeated(run: Run) -> str | None:
    """None if the failures of a run may be tried again; empty where there is nothing to say about it."""
    if run.exit_code != FAILED:
        return ""
    if run.record is None:
        return "the run died; nothing is run again"
    if not run.record.complete:
        return "not every test was run; nothing is run again"
    final = [failure for failure in run.record.failures if failure.final]
    if final:
        return "\n".join(f"{failure.test} is not run again: {failure.final}" for failure in final)
    if not run.record.failures:
        return "the run failed, but no test did; nothing is run again"
    if len(run.record.failures) > MOST_REPEATED:
        return f"{_count(run.record.failures)} failed, more than {MOST_REPEATED}: nothing is run again"
    return None


def alone(arguments: Sequence[str], record: RunRecord) -> list[str]:
    """The same options without workers, and the tests that failed instead of what was given to run."""
    options = [argument for argument in arguments if argument not in record.given]
    return [*options, "-n", "0", "--dist", "no", *(failure.test for failure in record.failures)]


def _judge(failures: Sequence[Failure], second: Run) -> int:
    passed = set(second.record.passed) if second.record is not None else set()
    again = {failure.test for failure in second.record.failures} if second.record is not None else set()
    unsteady: list[str] = []
    for failure in failures:
        if failure.test in passed - again:
            unsteady.append(f"unsteady: {failure.test} failed with {failure.message}, passed alone")
        else:
            how = "failed again alone" if failure.test in again else "did not pass alone"
            _say(f"{failure.test} failed with {failure.message}, {how}")
    if unsteady:
        with UNSTEADY.open("a") as kept:
            kept.writelines(f"{line}\n" for line in unsteady)
        print(*unsteady, sep="\n", flush=True)
    if len(unsteady) == len(failures):
        return second.exit_code
    return second.exit_code or FAILED


def _run(arguments: Sequence[str]) -> Run:
    """pytest in a process of its own, which Ctrl-C reaches by itself; it ends when it has cleaned up."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "record.json"
        command = [sys.executable, "-m", "pytest", "-p", "tools.run_record", "--run-record", str(path), *arguments]
        interrupted = signal.signal(signal.SIGINT, lambda _signal, _frame: None)
        with subprocess.Popen(command) as process:

            def end(number: int, _: FrameType | None) -> None:
                process.send_signal(number)

            ended = signal.signal(signal.SIGTERM, end)
            try:
                exit_code = process.wait()
            finally:
                signal.signal(signal.SIGTERM, ended)
                signal.signal(signal.SIGINT, interrupted)
        # Killed by a signal: as a shell says it.
        return Run(128 - exit_code if exit_code < 0 else exit_code, RunRecord.read(path))


@contextmanager
def _beside_others() -> Iterator[None]:
    """Parts of `make test` run at the same time; one that is alone is waited for."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


@contextmanager
def _alone() -> Iterator[None]:
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _count(failures: Sequence[Failure]) -> str:
    return f"{len(failures)} test{'s' if len(failures) > 1 else ''}"


def _say(text: str) -> None:
    print(*(f"run_tests: {line}" for line in text.splitlines()), sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
