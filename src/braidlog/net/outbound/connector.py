"""Makes transports to brokers by address: resolves names, connects, and secures what is connected."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Protocol, TypeVar, cast

from braidlog.core.types import address_text
from braidlog.net.outbound.errors import ClientError, ConnectionRefused, NoConnection, reason_of
from braidlog.net.outbound.transport import Transport

T = TypeVar("T")

Address = tuple[str, int]
# What socket.getaddrinfo says of an address.
Resolved = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[object, ...]]
# How a fresh socket becomes a transport: in clear text, or by a TLS handshake with the host of that name.
Secure = Callable[[asyncio.AbstractEventLoop, socket.socket, str], Awaitable[Transport]]
# What stands behind a listener that hangs up at the first request: it may speak something else.
Explain = Callable[[NoConnection, Address], Awaitable[ClientError]]


class Connector(Protocol):
    """Where a client's bytes go to; simulations have one of their own."""

    async def connect(self, address: Address) -> Transport:
        """Raises NoConnection where there is no broker."""
        ...

    async def explain(self, address: Address, problem: NoConnection) -> ClientError:
        """What to raise where a connection was lost at its first request; another of the name's is tried next."""
        ...


class SocketConnector:
    """TCP; each address of a name has `setup_timeout_s` to answer."""

    def __init__(
        self,
        secure: Secure,
        setup_timeout_s: float,
        *,
        explain: Explain | None = None,
        buffer_sizes: Mapping[int, int] | None = None,
        setting_of: Callable[[Address], str] = lambda _: "",
    ) -> None:
        self._secure = secure
        self._setup_s = setup_timeout_s
        self._explain = explain
        # By socket option; the system tunes what is not named.
        self._buffer_sizes = dict(buffer_sizes or {})
        # The setting in which the user gave an address, none where a broker named it.
        self._setting_of = setting_of
        # Which of a name's addresses to try first: the one after that which led nowhere.
        self._turns: dict[Address, int] = {}

    async def explain(self, address: Address, problem: NoConnection) -> ClientError:
        self._turns[address] = self._turns.get(address, 0) + 1
        return problem if self._explain is None else await self._explain(problem, address)

    async def connect(self, address: Address) -> Transport:
        loop = asyncio.get_running_loop()
        connected = await self._connect(loop, address, address_text(*address))
        try:
            return await self._secure(loop, connected, address[0])
        except BaseException as problem:
            connected.close()
            if isinstance(problem, OSError):
                raise NoConnection(
                    f"the connection to {address_text(*address)} broke ({reason_of(problem)})"
                ) from problem
            raise

    async def _connect(self, loop: asyncio.AbstractEventLoop, address: Address, shown: str) -> socket.socket:
        """The first address of a name that answers."""
        problem: OSError | None = None
        setting = self._setting_of(address)
        given = f" ({setting})" if setting else ""
        try:
            async with asyncio.timeout(self._setup_s):
                found = await _resolved(*address)
        except UnicodeError as wrong:
            raise NoConnection(f"{shown}{given} is no name that a host can have") from wrong
        except TimeoutError as late:
            raise NoConnection(
                f"the name {address[0]}{given} is not resolved within {self._setup_s:g} s; does DNS answer?"
            ) from late
        except socket.gaierror as unknown:
            # The resolver has words for its numbers, the system has not.
            raise NoConnection(
                f"the name {address[0]}{given} cannot be resolved ({unknown.strerror or unknown}); "
                "is it written right, and known to the resolver of this machine?"
            ) from unknown
        except OSError as unknown:
            found, problem = [], unknown
        first = self._turns.get(address, 0) % len(found) if found else 0
        for family, kind, protocol, _, where in found[first:] + found[:first]:
            made = socket.socket(family, kind, protocol)
            try:
                self._prepare(made)
                async with asyncio.timeout(self._setup_s):
                    await loop.sock_connect(made, where)
            except OSError as refused:
                made.close()
                # One that refuses says more than another that is silent.
                if problem is None or isinstance(problem, TimeoutError):
                    problem = refused
                continue
            except BaseException:
                made.close()
                raise
            return made
        if isinstance(problem, TimeoutError) and not problem.errno:
            raise NoConnection(
                f"no broker answers at {shown} within {self._setup_s:g} s; "
                "is the address right, and no firewall between?"
            ) from problem
        reason = f"{address[0]} has no address" if problem is None else reason_of(problem)
        doubt = f", and is {setting} right" if setting else ""
        error = ConnectionRefused if isinstance(problem, ConnectionRefusedError) else NoConnection
        raise error(f"no broker answers at {shown} ({reason}); is it running{doubt}?") from problem

    def _prepare(self, made: socket.socket) -> None:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A broker that vanished without a word is found out some day, even where nothing is asked of it.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in self._buffer_sizes.items():
            made.setsockopt(socket.SOL_SOCKET, option, size)


async def _resolved(host: str, port: int) -> list[Resolved]:
    if _is_address(host):
        # An address needs no resolver, whose thread would cost more than the connection.
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    return await in_own_thread(
        f"resolves {host}", lambda: list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    )


def _is_address(host: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    except (OSError, UnicodeError):
        return False
    return True


async def in_own_thread(name: str, call: Callable[[], T]) -> T:
    """What a call that blocks returns, without keeping the loop.

    Not the loop's executor: the end of a program waits for its threads, however long the call takes, and then closes it
    to those who still have something to send.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, problem: BaseException | None) -> None:
        if answer.done():
            return
        if problem is None:
            answer.set_result(cast("T", result))
        else:
            answer.set_exception(problem)

    def work() -> None:
        result: T | None = None
        problem: BaseException | None = None
        try:
            result = call()
        except BaseException as met:
            problem = met
        # The loop may be gone by then.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, problem)

    try:
        threading.Thread(target=work, name=f"braidlog {name}", daemon=True).start()
    except RuntimeError:
        # At the end of a program, from Python 3.12 on, there are no new threads. Little else needs the loop by then.
        work()
    return await answer
