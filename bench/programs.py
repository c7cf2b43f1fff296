"""The load generators: compiled on demand from the C next to this file, run, and their one line of JSON read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
BUILT = HERE.parent / "build" / "bench"
RUN_TIMEOUT_S = 300.0

Option = str | int | float
Result = dict[str, float]


class ProgramFailed(Exception):
    """A load generator ended badly; the text is what it said."""


def _have_librdkafka() -> bool:
    probe = subprocess.run(
        ["cc", "-x", "c", "-", "-o", os.devnull, "-lrdkafka"],
        input="#include <librdkafka/rdkafka.h>\nint main(void) { return rd_kafka_version() == 0; }\n",
        text=True,
        capture_output=True,
        check=False,
    )
    return probe.returncode == 0


def _require_librdkafka() -> None:
    if shutil.which("cc") is None:
        raise ProgramFailed("the benchmark's clients are C programs and there is no `cc`: install a C compiler")
    if _have_librdkafka():
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-qq", "librdkafka-dev"], capture_output=True, check=False)
    if not _have_librdkafka():
        raise ProgramFailed(
            "librdkafka's header and library are missing: `apt-get install librdkafka-dev`, "
            "`dnf install librdkafka-devel` or `brew install librdkafka`"
        )


def build() -> None:
    """Compile what changed; the digest of the sources is part of the name."""
    if not (_built("load", HERE / "load.c").exists() and _built("tiny", HERE / "tiny.c").exists()):
        _require_librdkafka()
    BUILT.mkdir(parents=True, exist_ok=True)
    for name, libraries in (("load", ["-lrdkafka", "-lpthread"]), ("tiny", [])):
        source = HERE / f"{name}.c"
        target = _built(name, source)
        if target.exists():
            continue
        command = [
            "cc",
            "-O2",
            "-Wall",
            "-Wextra",
            "-D_GNU_SOURCE",
            "-o",
            str(target),
            str(source),
            *libraries,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ProgramFailed(f"{source.name} does not compile:\n{done.stderr}")


def _built(name: str, source: Path) -> Path:
    texts = [source, *sorted(HERE.glob("*.h"))]
    digest = hashlib.sha256(b"".join(text.read_bytes() for text in texts)).hexdigest()[:12]
    return BUILT / f"{name}-{digest}"


def _command(program: str, mode: str, options: dict[str, Option]) -> list[str]:
    words = [str(_built(program, HERE / f"{program}.c")), mode]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


@contextmanager
def started(program: str, mode: str, **options: Option) -> Iterator[subprocess.Popen[str]]:
    """A running generator; it is gone when the block is left, however that happens."""
    child = subprocess.Popen(
        _command(program, mode, options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                _close(stream)


def _close(stream: IO[str]) -> None:
    # The program may have ended before it read what was meant for it.
    with contextlib.suppress(BrokenPipeError):
        stream.close()


def finish(child: subprocess.Popen[str]) -> Result:
    """Close the program's input, wait for its end and read what it measured."""
    output, errors = child.communicate(timeout=RUN_TIMEOUT_S)
    return _read(child, output, errors)


def _read(child: subprocess.Popen[str], output: str, errors: str) -> Result:
    if child.returncode != 0:
        assert isinstance(child.args, list)
        what = " ".join(str(word) for word in child.args[1:])
        # librdkafka logs while it tries; the last line is what the program gave up with.
        said = errors.strip().splitlines()[-1:] or [f"ended with {child.returncode}"]
        raise ProgramFailed(f"{what}: {said[0]}")
    lines = output.strip().splitlines()
    if not lines:
        raise ProgramFailed("a load generator printed nothing")
    result: Result = json.loads(lines[-1])
    return result


def run(program: str, mode: str, **options: Option) -> Result:
    with started(program, mode, **options) as child:
        return finish(child)
