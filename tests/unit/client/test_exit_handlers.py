from __future__ import annotations

import subprocess
import sys

import pytest

HANDLER = """
import threading
from braidlog.client.exit_handlers import at_exit

def register():
    at_exit(lambda: print("first registered", flush=True))
    at_exit(lambda: print("last registered", flush=True))
    threading.Thread(target=lambda: print("own thread", flush=True)).start()
"""
PLAIN = HANDLER + "\nregister()\n"
CHILD = (
    HANDLER
    + """
import multiprocessing

if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=register)
    child.start()
    child.join()
"""
)


@pytest.mark.parametrize("program", [PLAIN, CHILD], ids=["program", "child of multiprocessing"])
def test_handlers_are_called_last_first_after_the_programs_threads(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split("\n")[:3] == ["own thread", "last registered", "first registered"]
