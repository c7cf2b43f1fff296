"""`make run`: serves at once, compiled if these sources were compiled before.

Compiling takes a minute or more, which nobody who wants to look at a broker should wait for. So the first run serves
uncompiled and compiles in the background, into the cache alone: a process must never see both kinds of modules. The
next start finds them there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

from tools.build import (
    ROOT,
    cache_root,
    compiled_modules,
    install_in_place,
    is_current_in_place,
    is_kept,
    remove_in_place,
    remove_stale,
    why_uncompiled,
)

BUILD_LOG = ROOT / "build" / "compile.log"


def main() -> None:
    serve = [str(Path(sys.executable).with_name("braidlog")), "serve", *sys.argv[1:]]
    if why_uncompiled() is not None:
        remove_stale()
    elif not is_current_in_place():
        if cache_root() is not None and not is_kept():
            remove_in_place()
            sys.exit(serve_and_build(serve))
        with compiled_modules() as compiled:
            install_in_place(compiled)
    os.execv(serve[0], serve)


def serve_and_build(serve: list[str]) -> int:
    BUILD_LOG.parent.mkdir(exist_ok=True)
    # A session of its own: Ctrl-C is for the broker, and ending the build ends its compilers, too.
    with BUILD_LOG.open("w") as log:
        build = subprocess.Popen(
            ["nice", sys.executable, "-m", "tools.build", "--cache-only"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        threading.Thread(target=_report, args=(build,), daemon=True).start()
        return _serve_uncompiled(serve)
    finally:
        if build.poll() is None:
            os.killpg(build.pid, signal.SIGTERM)
            build.wait()


def _serve_uncompiled(serve: list[str]) -> int:
    say("serving uncompiled (several times slower) while the hot modules compile in the background, a few minutes")
    # To the end, even if somebody else puts compiled modules beside the sources meanwhile.
    broker = subprocess.Popen(serve, env={**os.environ, "BRAIDLOG_PURE": "1"})

    def stop(_number: int, _frame: FrameType | None) -> None:
        # A terminal's Ctrl-C has reached the broker by itself; being told twice does not hurt it.
        broker.terminate()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    return broker.wait()


def _report(build: subprocess.Popen[bytes]) -> None:
    code = build.wait()
    if code == 0:
        say("the hot modules are compiled; the next `make run` uses them")
    elif code > 0 and code != 128 + signal.SIGTERM:
        say(f"the hot modules could not be compiled, see {BUILD_LOG}")


def say(text: str) -> None:
    print(f"braidlog: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
