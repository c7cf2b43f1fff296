from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from braidlog.cli.watching.metrics_pages import MetricsPage, MetricsPages, PageError, read_page
from braidlog.client.admin.cluster_description import BrokerDescription
from braidlog.client.admin.configs import ConfigEntry, ConfigSource, ConfigType
from braidlog.client.admin.results import Results
from braidlog.net.http import HttpServer, Page

PAGE = """\
# HELP braidlog_info Always 1.
# TYPE braidlog_info gauge
braidlog_info{version="1.2",broker_id="7",cluster_id="abc"} 1
braidlog_time_seconds 1000.5
bytes_total{topic="a",client="x"} 3
bytes_total{topic="b",client="say \\"a\\\\b\\"\\n"} 4
level 1.5e3
"""


@contextmanager
def served(text: str, status: int = 200) -> Iterator[str]:
    """A page as a broker serves it, at an address of its own."""
    loop = asyncio.new_event_loop()

    async def page() -> Page:
        return Page(status, text)

    server = HttpServer({"/metrics": page})
    port = loop.run_until_complete(server.start("127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Brokers:
    """An admin that knows where pages are."""

    def __init__(self, listen: dict[int, str | None]) -> None:
        self.listen = listen
        self.asked: list[list[int]] = []

    def describe_configs(self, resources: list[Any], names: object) -> Any:
        ids = [int(each.name) for each in resources]
        self.asked.append(ids)
        return Results({each: self._entries(int(each.name)) for each in resources if int(each.name) in self.listen})

    def _entries(self, broker_id: int) -> dict[str, ConfigEntry]:
        name = "braidlog.http.listen"
        value = self.listen[broker_id]
        return {name: ConfigEntry(name, value, ConfigSource.DEFAULT, True, False, ConfigType.STRING, (), None)}


def brokers(*ids: int) -> dict[int, BrokerDescription]:
    return {each: BrokerDescription(each, "127.0.0.1", 9092, None) for each in ids}


def test_numbers_by_name_and_labels() -> None:
    page = MetricsPage(PAGE, None, began=998.0, ended=1002.0)
    assert (page.broker_id, page.cluster_id, page.version) == (7, "abc", "1.2")
    assert page.total("bytes_total") == 7
    assert page.total("bytes_total", topic="a") == 3
    assert page.total("bytes_total", topic="c") is None
    assert page.samples("bytes_total")[1].labels["client"] == 'say "a\\b"\n'
    assert page.total("level") == 1500
    # Ahead by half a second, give or take two.
    assert page.clock == (0.5, 2.0)


def test_only_what_is_wanted_is_kept() -> None:
    page = MetricsPage(PAGE, ["level"])
    assert page.total("level") == 1500
    assert page.total("bytes_total") is None
    assert page.broker_id == 7


@pytest.mark.parametrize("line", ["level much", "level", 'level{a="b"', "<html>"])
def test_what_is_no_metrics_page(line: str) -> None:
    with pytest.raises(PageError, match="no metric"):
        MetricsPage(line, None)


def test_pages_are_found_by_what_brokers_tell() -> None:
    with served(PAGE) as address:
        admin = Brokers({7: address, 8: "", 9: "127.0.0.1:1"})
        pages = MetricsPages("abc", [], 5.0)
        found = pages.read(cast(Any, admin), brokers(7, 8, 9, 10), ["level"])
        assert found.read[7].total("level") == 1500
        assert found.unread == {
            8: "it has none",
            9: "127.0.0.1:1: Connection refused",
            10: "its settings, which say where it is, cannot be read",
        }
        # Only those that were not found are asked for again.
        pages.read(cast(Any, admin), brokers(7, 8), ["level"])
        assert admin.asked == [[7, 8, 9, 10], [8]]


def test_pages_that_are_named() -> None:
    with served(PAGE) as address:
        found = MetricsPages("abc", [address], 5.0).read(cast(Any, Brokers({7: ""})), brokers(7))
        assert found.read[7].total("level") == 1500
        assert found.unread == {}


def test_a_page_of_another_broker_is_not_taken() -> None:
    with served(PAGE) as address:
        admin = Brokers({7: address, 6: address})
        found = MetricsPages("other", [], 5.0).read(cast(Any, admin), brokers(7))
        assert (found.read, found.unread) == ({}, {7: f"at {address} is that of another broker"})
        found = MetricsPages("abc", [], 5.0).read(cast(Any, admin), brokers(6))
        assert (found.read, found.unread) == ({}, {6: f"at {address} is that of another broker"})


def test_what_else_may_answer() -> None:
    with served("", 503) as address, pytest.raises(PageError, match="the answer is 503"):
        read_page(address, None, 5.0)
