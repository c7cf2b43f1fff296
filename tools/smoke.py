"""A round trip through an installed braidlog: `VENV/bin/python -I tools/smoke.py`, and one line of JSON about it.

It is run by the interpreter that has the package and imports nothing else of this tree.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

# A bound for a machine that does much else; it takes a second.
PATIENCE_S = 120.0
RECORDS = 1000


def main() -> None:
    program = str(Path(sys.executable).with_name("braidlog"))
    version = subprocess.run([program, "version", "--output", "json"], capture_output=True, text=True, check=True)
    with tempfile.TemporaryDirectory() as scratch:
        command = [program, "serve", "--data", f"{scratch}/data", "--listen", "127.0.0.1:0"]
        command += ["--set", "braidlog.http.listen="]
        log = Path(scratch, "log")
        with log.open("w") as errors:
            broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert broker.stdout is not None
            port = _port(broker.stdout)
            if port is None:
                sys.exit(f"the broker did not start:\n{log.read_text()}")
            _round_trip(program, f"127.0.0.1:{port}")
        finally:
            broker.terminate()
            code = broker.wait(PATIENCE_S)
        result = {**json.loads(version.stdout), "remark": version.stderr, "stopped": code, "log": log.read_text()}
    print(json.dumps(result))


def _port(lines: IO[str]) -> str | None:
    for line in lines:
        ready = re.search(r"ready on \S+:(\d+)", line)
        if ready is not None:
            return ready[1]
    return None


def _round_trip(program: str, bootstrap: str) -> None:
    """By the library with a codec, and by the command line."""
    from braidlog import Consumer, Producer

    with Producer(bootstrap_servers=bootstrap, compression_type="zstd") as producer:
        for number in range(RECORDS):
            producer.send("numbers", str(number).encode(), key=b"key")
    values: list[bytes | None] = []
    with Consumer(bootstrap_servers=bootstrap, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["numbers"])
        for record in consumer:
            values.append(record.value)
            if len(values) == RECORDS:
                break
    assert values == [str(number).encode() for number in range(RECORDS)], values[:10]

    def run(*words: str, text: str | None = None) -> str:
        command = [program, *words, "--bootstrap-server", bootstrap]
        return subprocess.run(
            command, input=text, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE_S
        ).stdout

    run("produce", "greetings", text="hello, log\n")
    read = run("consume", "greetings", "--offset", "earliest", "--max-messages", "1")
    assert "hello, log" in read, read


if __name__ == "__main__":
    main()
