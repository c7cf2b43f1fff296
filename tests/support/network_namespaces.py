"""A network for tests on this machine: hosts in network namespaces of their own, joined by a bridge, cut on order.

A cut has a direction: what one host sends to another is addressed to a network card that does not exist, so it leaves,
arrives nowhere, and nobody is told. Needs root and `ip`; `Network` says why it cannot be made where it cannot.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterable
from typing import Final, Self

# Nobody's.
_NOWHERE: Final = "02:ff:ff:ff:ff:ff"
_networks = itertools.count()


class NetworkUnavailable(Exception):
    """This machine, or this user, has no network namespaces."""


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise NetworkUnavailable(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Host:
    """An address; `prefix` starts a program there. One without a namespace is the machine itself."""

    def __init__(self, address: str, namespace: str, device: str) -> None:
        self.address = address
        self._namespace = namespace
        self._device = device
        self.prefix = ("nsenter", f"--net=/run/netns/{namespace}", "--") if namespace else ()

    def _neighbour(self, action: str, peer: Host, *more: str) -> None:
        where = ("-n", self._namespace) if self._namespace else ()
        _ip(*where, "neigh", action, peer.address, *more, "dev", self._device)

    def lose_packets_to(self, peer: Host) -> None:
        self._neighbour("replace", peer, "lladdr", _NOWHERE, "nud", "permanent")

    def reach_again(self, peer: Host) -> None:
        self._neighbour("del", peer)


class Network:
    """Use it in a `with`. Hosts are numbered from 1; `this_machine` is where the test and its clients are."""

    def __init__(self, hosts: int) -> None:
        for program in ("ip", "nsenter"):
            if shutil.which(program) is None:
                raise NetworkUnavailable(f"{program} is not installed")
        number = os.getpid() * 8 + next(_networks)
        # Interfaces have at most 15 characters.
        self._tag = f"bl{number & 0xFFFFFF:x}"
        self._subnet = f"10.{64 + number // 256 % 128}.{number % 256}"
        self._count = hosts
        self._cuts: list[tuple[Host, Host]] = []
        self.this_machine = Host(f"{self._subnet}.254", "", self._tag)
        self.hosts: list[Host] = []

    def __enter__(self) -> Self:
        try:
            _ip("link", "add", self._tag, "type", "bridge")
            _ip("addr", "add", f"{self.this_machine.address}/24", "dev", self._tag)
            _ip("link", "set", self._tag, "up")
            for number in range(1, self._count + 1):
                self.hosts.append(self._add(number))
        except BaseException:
            self.__exit__()
            raise
        return self

    def _add(self, number: int) -> Host:
        namespace = f"{self._tag}-{number}"
        address = f"{self._subnet}.{number}"
        _ip("netns", "add", namespace)
        _ip("link", "add", namespace, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", namespace, "master", self._tag, "up")
        _ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", namespace, "link", "set", device, "up")
        return Host(address, namespace, "eth0")

    def cut(self, senders: Iterable[Host], receivers: Iterable[Host]) -> None:
        """What these send does not reach those; the other direction works."""
        for sender, receiver in itertools.product(list(senders), list(receivers)):
            if sender is not receiver and (sender, receiver) not in self._cuts:
                sender.lose_packets_to(receiver)
                self._cuts.append((sender, receiver))

    def cut_both_ways(self, some: Iterable[Host], others: Iterable[Host]) -> None:
        here, there = list(some), list(others)
        self.cut(here, there)
        self.cut(there, here)

    def heal(self) -> None:
        while self._cuts:
            sender, receiver = self._cuts.pop()
            sender.reach_again(receiver)

    def __exit__(self, *_: object) -> None:
        for number in range(1, self._count + 1):
            subprocess.run(["ip", "netns", "del", f"{self._tag}-{number}"], capture_output=True)
            # Gone with its namespace, unless that has not come so far.
            subprocess.run(["ip", "link", "del", f"{self._tag}-{number}"], capture_output=True)
        subprocess.run(["ip", "link", "del", self._tag], capture_output=True)
