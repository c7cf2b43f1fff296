"""An honest client beside the attacks: one record every 5 ms on its own connection, and how long each took.

A record is sent when it is due, whether or not the one before it was answered, and its time counts from then: a
broker that stops for a second is seen by two hundred records, not by one.
"""

from __future__ import annotations

import gc
import json
import select
import sys
import time
from collections import deque
from contextlib import suppress

from braidlog.wire.apis import decode_response
from support.attacks.sending import connect
from support.attacks.target import Target, batch_of, frame, produce_request, tiny_records

PERIOD_S = 0.005
REPORT_S = 0.1
TOPIC = "victim"
PRODUCE, VERSION = 0, 9


def run(port: int) -> None:
    """Until standard input ends. Each line of output has what was answered since the one before it.

    `at` is on the machine's monotonic clock; `answered` has for each record when it was due, on that clock, and the
    seconds until its answer; `waiting` has when those without an answer were due; `broken` why the connection was lost.
    """
    target = Target(port)
    target.create_topic(TOPIC)
    target.close()
    request = frame("Produce", VERSION, produce_request(TOPIC, [(0, batch_of(tiny_records(1, b"v" * 20), 1))]))
    gc.disable()
    print("ready", flush=True)
    while True:
        try:
            _produce(port, request)
            return
        except (OSError, EOFError, AssertionError) as problem:
            _say({"at": time.monotonic(), "broken": f"{type(problem).__name__}: {problem}"})
            time.sleep(0.05)  # a client's reconnect.backoff.ms


def _say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _produce(port: int, request: bytes) -> None:
    with connect(port) as line:
        poll = select.poll()
        poll.register(line, select.POLLIN)
        poll.register(sys.stdin, select.POLLIN)
        due_times: deque[float] = deque()
        answered: list[tuple[float, float]] = []
        unsent = received = b""
        next_due = next_report = time.monotonic() + PERIOD_S
        while True:
            now = time.monotonic()
            while next_due <= now:
                due_times.append(next_due)
                next_due += PERIOD_S
                unsent += request
            if unsent:
                with suppress(BlockingIOError):
                    unsent = unsent[line.send(unsent) :]
            if now >= next_report:
                _say({"at": now, "answered": answered, "waiting": list(due_times)})
                answered = []
                next_report = now + REPORT_S
            for number, _ in poll.poll(max(0.0, (next_due - time.monotonic()) * 1000)):
                if number == sys.stdin.fileno():
                    _say({"at": now, "answered": answered, "waiting": list(due_times)})
                    return
                more = line.recv(1 << 16)
                if not more:
                    raise EOFError("the broker closed the connection")
                received += more
                now = time.monotonic()
                while len(received) >= 4 and len(received) >= (end := 4 + int.from_bytes(received[:4], "big")):
                    _check(received[4:end])
                    received = received[end:]
                    due = due_times.popleft()
                    answered.append((round(due, 4), round(now - due, 6)))


def _check(answer: bytes) -> None:
    done = decode_response(PRODUCE, VERSION, answer)[1].responses[0].partition_responses[0]  # type: ignore[attr-defined]
    assert done.error_code == 0, f"a record was refused with error code {done.error_code}: {done.error_message}"
