"""`python -m braidlog.testing.serve_until_eof`: `braidlog serve` that also stops when its standard input ends.

The process that started it holds the other end of that pipe. However the test run ends, even by SIGKILL, the pipe is
closed then and no broker stays behind.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from braidlog.cli.commands.serve import main


def _stop_at_end_of_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_stop_at_end_of_input, name="end of input", daemon=True).start()
    sys.exit(main(sys.argv[1:]))
