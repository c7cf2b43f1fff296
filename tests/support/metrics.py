"""The numbers of a broker's metrics page."""

from __future__ import annotations

from urllib.request import urlopen

from support.broker import Broker


def total(broker: Broker, name: str) -> float:
    """The sum of a metric over all its labels; an error where the page does not know it."""
    with urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=30) as page:
        text = page.read().decode()
    lines = [line for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name]
    assert lines, f"no {name} on the metrics page"
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)
