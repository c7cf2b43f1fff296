"""An example's own broker: it serves, and it goes whatever happens to the example."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from braidlog import Admin
from braidlog.core.errors import UserError
from pyspark_braidlog.examples.broker import own_broker
from support.eventually import eventually


def _is_served(bootstrap: str) -> bool:
    try:
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.within(2).describe_cluster()
    except Exception:
        return False
    return True


def test_it_serves_until_the_block_ends() -> None:
    with own_broker() as bootstrap:
        assert _is_served(bootstrap)
    assert not _is_served(bootstrap)


def test_what_cannot_start_says_why() -> None:
    with pytest.raises(UserError, match=r"--bootstrap HOST:PORT(.|\n)*log\.roll\.ms"), own_broker({"log.roll.ms": "x"}):
        pass


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_goes_with_the_example(number: signal.Signals) -> None:
    program = (
        "import sys, time\n"
        "from pyspark_braidlog.examples.broker import own_broker\n"
        "with own_broker() as bootstrap:\n"
        "    print(bootstrap, flush=True)\n"
        "    time.sleep(600)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
    example = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment)
    assert example.stdout is not None
    with example.stdout:
        bootstrap = example.stdout.readline().decode().strip()
        assert _is_served(bootstrap)
        example.send_signal(number)
        example.wait(30)
    eventually(lambda: not _is_served(bootstrap))
