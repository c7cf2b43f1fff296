"""The metrics pages of brokers: where they are, and the numbers on them.

A broker tells in its settings where its page is (`braidlog.http.listen`); `--metrics` names pages that have another
address from here. Whose page it is, it says itself: a number is never taken for another broker's.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

from braidlog.cli.options import listen_address
from braidlog.core.errors import BraidlogError
from braidlog.core.types import address_text

if TYPE_CHECKING:
    from braidlog.client.admin.admin import Admin
    from braidlog.client.admin.cluster_description import BrokerDescription

HTTP_LISTEN: Final = "braidlog.http.listen"
INFO: Final = "braidlog_info"
TIME: Final = "braidlog_time_seconds"

_EVERY_INTERFACE: Final = ("", "0.0.0.0", "::", "[::]")
_MOST_BYTES: Final = 256 << 20
_AT_ONCE: Final = 16
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")


class Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float


class PageError(BraidlogError):
    """Why a page was not read, as the end of a sentence."""


class MetricsPage:
    """The numbers of one broker at one moment."""

    def __init__(self, text: str, names: Collection[str] | None, began: float = 0.0, ended: float = 0.0) -> None:
        """`names` are those that are wanted, None for all; `began` and `ended` are when it was asked for, and there."""
        self._samples: dict[str, list[Sample]] = {}
        self._wanted = None if names is None else frozenset((*names, INFO, TIME))
        for line in text.splitlines():
            self._read(line)
        self.began = began
        self.ended = ended

    def _read(self, line: str) -> None:
        if not line or line.startswith("#"):
            return
        name = line[: line.find("{")] if "{" in line else line.partition(" ")[0]
        if self._wanted is not None and name not in self._wanted:
            return
        found = _SAMPLE.fullmatch(line)
        if found is None:
            raise PageError(f"it has a line that is no metric: {line[:60]!r}")
        labels = {key: _ESCAPE.sub(_unescaped, value) for key, value in _LABEL.findall(found[2] or "")}
        try:
            self._samples.setdefault(name, []).append(Sample(labels, float(found[3])))
        except ValueError:
            raise PageError(f"it has a line that is no metric: {line[:60]!r}") from None

    def samples(self, name: str) -> Sequence[Sample]:
        return self._samples.get(name, ())

    def total(self, name: str, **labels: str) -> float | None:
        """The sum of those with these labels; None where the page has not one."""
        found = [
            each.value
            for each in self.samples(name)
            if all(each.labels.get(key) == value for key, value in labels.items())
        ]
        return sum(found) if found else None

    @property
    def broker_id(self) -> int:
        text = self._info("broker_id")
        return int(text) if text.isdecimal() else -1

    @property
    def cluster_id(self) -> str:
        return self._info("cluster_id")

    @property
    def version(self) -> str:
        return self._info("version")

    def _info(self, label: str) -> str:
        samples = self.samples(INFO)
        return samples[0].labels.get(label, "") if samples else ""

    @property
    def clock(self) -> tuple[float, float] | None:
        """How many seconds the broker's clock is ahead of this machine's, give or take how many."""
        told = self.total(TIME)
        return None if told is None else (told - (self.began + self.ended) / 2, (self.ended - self.began) / 2)


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else str(found[1])


class Pages(NamedTuple):
    """By broker its page, or why there is none."""

    read: Mapping[int, MetricsPage]
    unread: Mapping[int, str]


def add_metrics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        type=listen_address,
        action="append",
        default=[],
        help="where a broker's metrics page is, if not where its braidlog.http.listen says; repeatable",
    )


class MetricsPages:
    """Of one cluster; where its brokers have their pages is found out once, and again for those that are not read."""

    def __init__(self, cluster_id: str, named: Iterable[str], timeout_s: float) -> None:
        """`named` are addresses from the command line."""
        self._cluster_id = cluster_id
        self._named = tuple(named)
        self._timeout_s = timeout_s
        self._known: dict[int, str] = {}

    def read(
        self,
        admin: Admin,
        brokers: Mapping[int, BrokerDescription],
        names: Collection[str] | None = None,
        settings: Mapping[int, Mapping[str, str | None]] | None = None,
    ) -> Pages:
        """Ask all of these brokers; `settings` are theirs, where they were asked already."""
        unread: dict[int, str] = {}
        addresses = {self._known[each]: each for each in brokers if each in self._known}
        lacking = [each for each in brokers if each not in self._known]
        if lacking:
            addresses |= dict.fromkeys(self._named, -1)
            told = broker_settings(admin, lacking, (HTTP_LISTEN,)) if settings is None else settings
            for broker_id in lacking:
                if broker_id not in told:
                    unread[broker_id] = "its settings, which say where it is, cannot be read"
                    continue
                address = _page_address(brokers[broker_id], told[broker_id])
                if address is None:
                    unread[broker_id] = "it has none"
                else:
                    addresses.setdefault(address, broker_id)
        found: dict[int, MetricsPage] = {}
        for address, page in self._read_all(addresses, names):
            asked = addresses[address]
            if isinstance(page, PageError):
                unread.setdefault(asked, f"{address}: {page}")
                self._known.pop(asked, None)
            elif page.broker_id in brokers and page.cluster_id == self._cluster_id:
                found[page.broker_id] = page
                self._known[page.broker_id] = address
            else:
                unread.setdefault(asked, f"at {address} is that of another broker")
        for broker_id in brokers:
            if broker_id not in found:
                unread.setdefault(broker_id, "it was not found")
        return Pages(found, {each: why for each, why in unread.items() if each not in found})

    def _read_all(
        self, addresses: Collection[str], names: Collection[str] | None
    ) -> Iterator[tuple[str, MetricsPage | PageError]]:
        def read(address: str) -> MetricsPage | PageError:
            try:
                return read_page(address, names, self._timeout_s)
            except PageError as problem:
                return problem

        if addresses:
            with ThreadPoolExecutor(min(_AT_ONCE, len(addresses)), "metrics") as pool:
                yield from zip(addresses, pool.map(read, addresses), strict=True)


def broker_settings(admin: Admin, brokers: Iterable[int], names: Sequence[str]) -> dict[int, dict[str, str | None]]:
    """What brokers say of some of their settings; nothing of those that do not answer, or may not say."""
    from braidlog.client.admin.configs import ConfigResource

    resources = {ConfigResource.broker(each): each for each in brokers}
    try:
        told = admin.describe_configs(list(resources), names=names)
    except BraidlogError:
        return {}
    return {
        resources[resource]: {name: entry.value for name, entry in entries.items()}
        for resource, entries in told.succeeded.items()
    }


def _page_address(broker: BrokerDescription, settings: Mapping[str, str | None]) -> str | None:
    host, _, port = (settings.get(HTTP_LISTEN) or "").rpartition(":")
    if not (port.isascii() and port.isdecimal()):
        return None
    return address_text(broker.host, int(port)) if host in _EVERY_INTERFACE else f"{host}:{port}"


def read_page(address: str, names: Collection[str] | None, timeout_s: float) -> MetricsPage:
    """Raises PageError."""
    from http.client import HTTPConnection, HTTPException

    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + timeout_s
    connection = HTTPConnection(host.strip("[]"), int(port), timeout=timeout_s)
    try:
        began = time.time()
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        if answer.status != 200:
            raise PageError(f"the answer is {answer.status}")
        parts: list[bytes] = []
        size = 0
        while part := answer.read1(1 << 20):
            parts.append(part)
            size += len(part)
            if size > _MOST_BYTES or time.monotonic() > deadline:
                raise PageError("it takes too long")
        ended = time.time()
    except HTTPException as problem:
        raise PageError(f"what answers does not speak HTTP ({type(problem).__name__})") from problem
    except OSError as problem:
        raise PageError(
            "no answer in time" if isinstance(problem, TimeoutError) else str(problem.strerror or problem)
        ) from problem
    finally:
        connection.close()
    return MetricsPage(b"".join(parts).decode("utf-8", "replace"), names, began, ended)
