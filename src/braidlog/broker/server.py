"""A broker with its sockets: binds, starts, says that it is ready, and stops on a signal without losing anything."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from braidlog.broker.allocator import give_back_memory
from braidlog.broker.broker import Broker, quota_window
from braidlog.broker.broker_metrics import LoopLag, http_pages
from braidlog.broker.environment import Environment, system_environment
from braidlog.cluster.quota_entities import CONNECTION_CREATION_RATE, QuotaEntity, decoded
from braidlog.config import known
from braidlog.config.broker import BrokerSettings
from braidlog.config.checks import connection_overrides
from braidlog.config.listeners import LISTENER_KEYS, PLAINTEXT, Listeners, parse_listeners, shared_with_brokers
from braidlog.config.message_format import format_without_effect
from braidlog.config.unsupported_settings import without_effect
from braidlog.core.errors import FatalError, UserError
from braidlog.core.protocol_errors import InvalidConfigError
from braidlog.core.slices import FileSlice
from braidlog.core.types import Endpoint
from braidlog.net.channel import Channel
from braidlog.net.connection import ConnectionLimits
from braidlog.net.connection_quotas import ConnectionQuotas, addresses_of, host_addresses, is_address
from braidlog.net.http import HttpServer
from braidlog.net.listener import Listener, bind
from braidlog.storage.dirs.log_dir_loader import LoadProgress

if TYPE_CHECKING:
    import ssl

    from braidlog.broker.authentication.sasl_authenticator import Mechanisms, SaslListener
    from braidlog.broker.authentication.verification_keys import VerificationKeys
    from braidlog.net.tls_socket import TlsAcceptor
    from braidlog.security.certificate_changes import CertificateNames

log = logging.getLogger("braidlog.server")

_DRAIN_S: Final = 10.0
_BUSY_POLLS: Final = 200
# Per data directory: syncs of different logs wait for the disk side by side.
_THREADS: Final = 8
_COLD_READS: Final = "cold reads"
_PROGRESS_EVERY_S: Final = 1.0
_MEMORY_EVERY_S: Final = 1.0
_CERTIFICATES_EVERY_S: Final = 5.0
# New objects after which the garbage collector looks at them, how many of these looks make the next generation due, and
# how many of those the oldest: ten thousand objects take a millisecond or two, fifty thousand ten.
_YOUNG_OBJECTS: Final = 10_000
_MIDDLE_EVERY: Final = 5
_OLD_EVERY: Final = 500
# A client that gets no answer for this long from an advertised address gives up.
_REACH_TIMEOUT_S: Final = 3.0


class Server:
    def __init__(self, settings: BrokerSettings, warnings: list[str], environment: Environment | None = None) -> None:
        self.settings = settings
        self.warnings = warnings
        self.started = time.monotonic()
        self.environment = environment or system_environment(_THREADS)
        self.broker = Broker(settings, self.environment, on_progress=self._progress, on_fatal=self._fatal)
        self.quotas = ConnectionQuotas(window=quota_window(settings))
        overrides = connection_overrides(settings.get_str("max.connections.per.ip.overrides"))
        self.quotas.set_host_limits(settings.get_int("max.connections.per.ip"), addresses_of(overrides))
        self.broker.settings.on_change(self._settings_changed)
        self.broker.settings.on_check(self._check_settings)
        self.listeners: list[Listener] = []
        # Of those listeners that want a login, by name.
        self.sasl_listeners: dict[str, SaslListener] = {}
        # What their tokens are verified with; none before the first of them.
        self._verification_keys: VerificationKeys | None = None
        # The protocols of those that speak TLS.
        self._tls_protocols: dict[str, str] = {}
        self._certificate_names: dict[str, CertificateNames | None] = {}
        # The advertised addresses; none before the start.
        self.advertised: tuple[Endpoint, ...] = ()
        # What each listener was bound to, as the settings had it.
        self._bound: dict[str, Endpoint] = {}
        self._following = asyncio.Lock()
        self.loop_lag = LoopLag()
        self._stop = asyncio.Event()
        self._failure: Exception | None = None
        self._side_port: HttpServer | None = None
        self._last_progress = 0.0

    async def run(self) -> int:
        """Serve as a program of its own: until a signal, or until nothing can be served any more."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.request_stop)
        _collect_young_garbage_only()
        # A large decision of the controller is made in a thread, which is to run before that.
        await loop.run_in_executor(None, _start_thread)
        advertised = await self.open()
        _keep_what_is_alive()
        self._announce(advertised)
        self.broker.tasks.spawn("advertised addresses", explain_unreachable(advertised))
        await self.serve_until_stopped()
        return 0

    async def open(self) -> tuple[Endpoint, ...]:
        """Start, and let clients in; returns the advertised addresses."""
        for warning in self.warnings:
            log.warning("%s", warning)
        idle = without_effect(self.settings)
        if idle:
            log.info("set, but without effect here (docs/SETTINGS.md says why): %s", ", ".join(idle))
        old_format = format_without_effect(None, self.settings)
        if old_format is not None:
            log.warning("%s", old_format)
        listeners = parse_listeners(self.settings)
        shared = shared_with_brokers(self.settings, listeners)
        if shared is not None:
            log.warning("%s", shared)
        self._check_security(self.settings, listeners)
        sockets = self._bind(listeners)
        try:
            names = [endpoint.listener for endpoint in listeners.bound]
            ports = [int(sock.getsockname()[1]) for sock in sockets]
            advertised = _advertised(listeners, dict(zip(names, ports, strict=True)))
            await self.broker.prepare(listeners.inter_broker, listeners.protocols[listeners.inter_broker])
            self.broker.client_quotas.follow_ips(self._limit_host_rate)
            self.environment.executors.start([_COLD_READS])
            for sock in sockets:
                # Who hears of this broker can connect at once, and is answered a little later.
                sock.listen(self.settings.get_int("socket.listen.backlog.size"))
            await self.broker.join(advertised, listeners.protocols)
        except BaseException:
            for sock in sockets:
                sock.close()
            self.environment.executors.close()
            raise
        broker = self.broker
        self.limits = ConnectionLimits(
            self.settings.get_int("socket.request.max.bytes"), broker.memory, broker.fair_queue
        )
        self._listen(listeners, listeners.bound, sockets)
        self.advertised = advertised
        await self._wait_until_announced()
        # What was changed at run time in an earlier life is known only now.
        await self._reconfigure_listeners()
        await self._start_side_port()
        self.broker.tasks.spawn("loop lag", self.loop_lag.watch())
        self.broker.tasks.spawn("memory", self._watch_memory())
        if self._tls_protocols:
            self.broker.tasks.spawn("certificates", self._watch_certificates())
        return self.advertised

    async def _wait_until_announced(self) -> None:
        """Or until the broker is to stop."""
        announced = self.broker.tasks.spawn("announcement", self._announced())
        stopped = self.broker.tasks.spawn("stop while starting", self._stop.wait())
        await asyncio.wait([announced, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()

    async def _announced(self) -> None:
        await self.broker.wait_until_announced()
        if self._verification_keys is not None:
            # A client that logs in as soon as it can is not refused for want of keys.
            await self._verification_keys.asked()

    def request_stop(self) -> None:
        """On the loop's thread."""
        self._stop.set()

    async def serve_until_stopped(self) -> None:
        """Returns after a clean stop; raises what made serving impossible."""
        await self._stop.wait()
        await self._shut_down()
        if self._failure is not None:
            raise FatalError(str(self._failure))

    def _bind(self, listeners: Listeners) -> list[socket.socket]:
        return [self._bind_one(endpoint) for endpoint in listeners.bound]

    def _bind_one(self, endpoint: Endpoint) -> socket.socket:
        receive_buffer = self.settings.get_int("socket.receive.buffer.bytes")
        if not self.settings.is_set("socket.receive.buffer.bytes"):
            # The kernel's own tuning does better than the fixed default.
            receive_buffer = -1
        return bind(endpoint._replace(host=endpoint.host or "0.0.0.0"), receive_buffer)

    def _listen(self, listeners: Listeners, new: tuple[Endpoint, ...], sockets: list[socket.socket]) -> None:
        several = len(listeners.bound) > 1
        for endpoint in listeners.bound:
            between_brokers = several and endpoint.listener == listeners.inter_broker
            self.quotas.add_listener(endpoint.listener, protected=between_brokers)
        self._limit_connections(self.broker.settings.current)
        for endpoint, sock in zip(new, sockets, strict=True):
            self._listen_on(endpoint, sock, listeners.protocols[endpoint.listener])

    def _listen_on(self, endpoint: Endpoint, sock: socket.socket, protocol: str) -> None:
        settings = self.settings
        send_buffer = settings.get_int("socket.send.buffer.bytes")
        if not settings.is_set("socket.send.buffer.bytes"):
            send_buffer = -1
        listener = Listener(
            endpoint.listener,
            sock,
            self.broker.dispatch,
            self.broker.round,
            asyncio.get_running_loop(),
            self.quotas,
            self.limits,
            self._warm,
            backlog=settings.get_int("socket.listen.backlog.size"),
            send_buffer=send_buffer,
            max_idle_s=settings.get_int("connections.max.idle.ms") / 1000,
            tls=self._tls(endpoint.listener, protocol) if protocol.endswith("SSL") else None,
            authenticate=self._sasl(endpoint.listener) if protocol.startswith("SASL_") else None,
        )
        self.listeners.append(listener)
        self._bound[endpoint.listener] = endpoint
        listener.start()

    @staticmethod
    def _check_security(settings: BrokerSettings, listeners: Listeners) -> None:
        """Raises UserError for a listener that cannot ask of its clients what its settings say."""
        if any(protocol != PLAINTEXT for protocol in listeners.protocols.values()):
            from braidlog.broker.authentication.listener_security import check_listener

            for endpoint in listeners.bound:
                for warning in check_listener(settings, endpoint.listener, listeners.protocols[endpoint.listener]):
                    log.warning("%s", warning)

    def _tls(self, name: str, protocol: str) -> TlsAcceptor:
        from braidlog.broker.authentication.listener_security import certificate_names, principal_of, tls_of_listener
        from braidlog.net.tls_socket import TlsAcceptor

        settings = self.broker.settings.current
        self._tls_protocols[name] = protocol
        self._certificate_names[name] = certificate_names(settings, name)
        return TlsAcceptor(
            name,
            tls_of_listener(settings, name, protocol),
            principal_of(settings, name),
            partial(self.environment.executors.run, "TLS handshakes"),
            settings.get_int("connection.failed.authentication.delay.ms") / 1000,
        )

    def _sasl(self, name: str) -> Callable[[Channel], None]:
        # A broker without logins starts without these.
        from braidlog.broker.authentication.sasl_authenticator import SaslListener

        listener = self.sasl_listeners[name] = SaslListener(
            name,
            self._mechanisms(self.broker.settings.current, name),
            self.broker.dispatch,
            self.environment.clock,
            asyncio.get_running_loop(),
        )
        return listener.begin

    def _mechanisms(self, settings: BrokerSettings, name: str) -> Mechanisms:
        from braidlog.broker.authentication.listener_security import sasl_mechanisms

        broker = self.broker
        return sasl_mechanisms(settings, name, broker.scram_users, broker.delegation_tokens, self._keys)

    def _keys(self) -> VerificationKeys:
        from braidlog.broker.authentication.verification_keys import VerificationKeys

        if self._verification_keys is None:
            self._verification_keys = VerificationKeys(self.environment.clock, self.broker.tasks)
        return self._verification_keys

    # Changes at run time

    async def _reconfigure_listeners(self) -> None:
        """Open, close and advertise as the settings say now (KIP-226)."""
        async with self._following:
            try:
                wanted = parse_listeners(self.broker.settings.current)
            except InvalidConfigError as problem:
                log.error("the listeners stay as they are: %s", problem.message)
                return
            for listener in [each for each in self.listeners if self._bound[each.name] not in wanted.bound]:
                self._retire(listener)
            coming = tuple(endpoint for endpoint in wanted.bound if endpoint.listener not in self._bound)
            if coming:
                try:
                    self._check_security(self.broker.settings.current, wanted._replace(bound=coming))
                    self._listen(wanted, coming, self._bind(wanted._replace(bound=coming)))
                except UserError as problem:
                    log.error("not listening on %s: %s", ", ".join(map(str, coming)), problem)
            ports = {listener.name: listener.port for listener in self.listeners}
            reachable = tuple(endpoint for endpoint in wanted.advertised if endpoint.listener in ports)
            advertised = _advertised(wanted._replace(advertised=reachable), ports)
            if advertised != self.advertised:
                await self.broker.advertise(advertised, wanted.protocols)
                self.advertised = advertised
                log.info("advertised listener: %s", ", ".join(map(str, advertised)))

    def _retire(self, listener: Listener) -> None:
        """No new connections; those that wait for an answer get it first."""
        self.listeners.remove(listener)
        del self._bound[listener.name]
        self.sasl_listeners.pop(listener.name, None)
        listener.stop_accepting()
        self.broker.tasks.spawn(f"closing {listener.name}", self._close_when_idle(listener))

    async def _close_when_idle(self, listener: Listener) -> None:
        try:
            for _ in range(_BUSY_POLLS):
                if not listener.busy():
                    return
                await asyncio.sleep(_DRAIN_S / _BUSY_POLLS)
        finally:
            listener.close()

    def _settings_changed(self, settings: BrokerSettings, keys: list[str]) -> None:
        if any((known.listener_base(key) or key).startswith("max.connection") for key in keys):
            self._limit_connections(settings)
            self._limit_hosts(settings)
        if any("sasl" in key or "connections.max.reauth.ms" in key for key in keys):
            self._change_logins(settings)
        if any("ssl." in key for key in keys):
            self._change_certificates(settings)
        if self.advertised and not LISTENER_KEYS.isdisjoint(keys):
            self.broker.tasks.spawn("listeners", self._reconfigure_listeners())

    def _change_logins(self, settings: BrokerSettings) -> None:
        """New users and mechanisms count for the logins that come."""
        for name, listener in self.sasl_listeners.items():
            try:
                listener.mechanisms = self._mechanisms(settings, name)
                if name == self.broker.inter_broker:
                    self.broker.renew_inter_broker_channels()
            except UserError as problem:
                log.error("logins on %s stay as they were: %s", name, problem)

    def _change_certificates(self, settings: BrokerSettings) -> None:
        """New keys, trust and rules count for the connections that come."""
        for listener in self.listeners:
            if listener.tls is None:
                continue
            from braidlog.broker.authentication import listener_security

            name = listener.name
            try:
                context, names = self._new_certificate(settings, name)
                listener.tls.principal_of = listener_security.principal_of(settings, name)
                listener.tls.context = context
                self._certificate_names[name] = names
                if name == self.broker.inter_broker:
                    self.broker.renew_inter_broker_channels()
            except UserError as problem:
                log.error("TLS stays as it was: %s", problem)

    def _new_certificate(self, settings: BrokerSettings, name: str) -> tuple[ssl.SSLContext, CertificateNames | None]:
        """What the listener would show with these settings; raises UserError where it has to keep what it has."""
        from braidlog.broker.authentication import listener_security

        context = listener_security.tls_of_listener(settings, name, self._tls_protocols[name])
        names = listener_security.certificate_names(settings, name)
        listener_security.check_certificate_change(settings, name, self._certificate_names[name], names)
        return context, names

    def _check_settings(self, settings: BrokerSettings, keys: list[str]) -> None:
        """Whether open listeners could take these settings over; raises UserError that says why not."""
        if any("ssl." in key for key in keys):
            from braidlog.broker.authentication.listener_security import principal_of

            for name in [listener.name for listener in self.listeners if listener.tls is not None]:
                self._new_certificate(settings, name)
                principal_of(settings, name)
        if any("sasl" in key for key in keys):
            for name in self.sasl_listeners:
                self._mechanisms(settings, name)

    async def _watch_certificates(self) -> None:
        """A renewed certificate counts when its file has changed, without a word from anybody."""
        before: dict[str, float] = {}
        while True:
            settings = self.broker.settings.current
            now: dict[str, float] = {}
            for listener in self.listeners:
                for key in ("ssl.keystore.location", "ssl.truststore.location") if listener.tls is not None else ():
                    path = settings.get_for_listener(listener.name, key)
                    if isinstance(path, str) and path:
                        with suppress(OSError):
                            now[path] = os.stat(path).st_mtime
            if before and any(now.get(path, at) != at for path, at in before.items()):
                log.info("certificates have changed: new connections get the new ones")
                self._change_certificates(settings)
            before = now
            await asyncio.sleep(_CERTIFICATES_EVERY_S)

    def _limit_connections(self, settings: BrokerSettings) -> None:
        self.quotas.set_limits(settings.get_int("max.connections"), settings.get_int("max.connection.creation.rate"))
        for name in self.quotas.listeners:
            most = settings.get_for_listener(name, "max.connections")
            rate = settings.get_for_listener(name, "max.connection.creation.rate")
            assert isinstance(most, int)
            assert isinstance(rate, int)
            self.quotas.set_listener_limits(name, most, rate)

    def _limit_hosts(self, settings: BrokerSettings) -> None:
        """Names of hosts are looked up off the loop, which takes as long as the name server likes."""
        overrides = connection_overrides(settings.get_str("max.connections.per.ip.overrides"))
        addresses: dict[str, int] = {}

        def done(problem: Exception | None) -> None:
            if problem is not None:
                log.error("max.connections.per.ip.overrides stays as it was: %s", problem)
            elif self.broker.settings.current is settings:
                self.quotas.set_host_limits(settings.get_int("max.connections.per.ip"), addresses)

        self.environment.executors.run("name look-ups", lambda: addresses.update(addresses_of(overrides)), done)

    def _limit_host_rate(self, entity: QuotaEntity, quotas: Mapping[str, float]) -> None:
        """A quota of an address, or of a host, whose addresses are looked up off the loop."""
        assert entity.ip is not None
        host = decoded(entity.ip)
        if host is None or is_address(host):
            self.quotas.set_host_rate(host, quotas.get(CONNECTION_CREATION_RATE))
            return
        addresses: list[str] = []

        def done(problem: Exception | None) -> None:
            if problem is not None:
                log.error("the connection rate of %s stays as it was: %s", host, problem)
            # It may have changed again meanwhile.
            now = self.broker.client_quotas.table.get(entity)
            for address in addresses:
                self.quotas.set_host_rate(address, now.get(CONNECTION_CREATION_RATE))

        self.environment.executors.run("name look-ups", lambda: addresses.extend(host_addresses(host)), done)

    def _warm(self, part: FileSlice, done: object) -> None:
        """Bring a cold file range into the page cache off the loop."""
        assert callable(done)
        self.environment.executors.run(_COLD_READS, lambda: _read_through(part), lambda problem: done())

    async def _start_side_port(self) -> None:
        address = self.settings.get_str("braidlog.http.listen")
        if not address:
            return
        host, _, port = address.rpartition(":")
        side_port = HttpServer(http_pages(self))
        try:
            bound = await side_port.start(host or "127.0.0.1", int(port))
        except OSError as problem:
            if self.settings.is_set("braidlog.http.listen"):
                raise UserError(
                    f"cannot serve metrics on {address}: {problem.strerror}; set braidlog.http.listen to a free "
                    "address, or to nothing to switch it off"
                ) from problem
            log.warning("no metrics and health pages: %s is taken; set braidlog.http.listen", address)
            self.broker.settings.note_bound("braidlog.http.listen", "")
            return
        self._side_port = side_port
        if bound != int(port):
            self.broker.settings.note_bound("braidlog.http.listen", f"{host or '127.0.0.1'}:{bound}")
        log.info("metrics and health on http://%s:%d/metrics, /healthz, /readyz", host or "127.0.0.1", bound)

    def _announce(self, advertised: tuple[Endpoint, ...]) -> None:
        where = ", ".join(map(str, advertised))
        took = max(seconds_since_process_start(), time.monotonic() - self.started)
        try:
            print(
                f"braidlog broker {self.broker.broker_id} is ready on {where} after {took:.2f} s "
                f"(cluster {self.broker.cluster_id}, {len(self.broker.registry)} partitions)",
                flush=True,
            )
        except OSError as problem:
            # Clients are served all the same.
            log.warning("ready on %s; standard output does not take the line that says so: %s", where, problem)

    async def _watch_memory(self) -> None:
        """Let no peer hold memory that others wait for, and give back what a burst of requests has left behind."""
        memory = self.broker.memory
        while True:
            await asyncio.sleep(_MEMORY_EVERY_S)
            memory.requests.close_stalled(time.monotonic())
            if memory.has_emptied():
                await asyncio.get_running_loop().run_in_executor(
                    self.environment.executors.of("memory"), give_back_memory
                )

    def _progress(self, progress: LoadProgress) -> None:
        now = time.monotonic()
        if now - self._last_progress < _PROGRESS_EVERY_S and progress.logs_done < progress.logs_total:
            return
        self._last_progress = now
        megabytes = progress.recovered_bytes / 1e6
        log.info(
            "%s: %d of %d logs open, %.0f MB checked",
            progress.directory,
            progress.logs_done,
            progress.logs_total,
            megabytes,
        )

    def _fatal(self, problem: Exception) -> None:
        log.critical("stopping: %s", problem)
        self._failure = problem
        self._stop.set()

    async def _shut_down(self) -> None:
        began = time.monotonic()
        await self.broker.leave()
        log.info("stopping: no new connections, requests in progress finish first")
        for listener in self.listeners:
            listener.stop_accepting()
        await self.broker.drain(lambda: sum(listener.busy() for listener in self.listeners), _DRAIN_S)
        for listener in self.listeners:
            listener.close()
        if self._side_port is not None:
            await self._side_port.stop()
        await self.broker.stop()
        log.info("stopped cleanly in %.2f s", time.monotonic() - began)


def _advertised(listeners: Listeners, ports: dict[str, int]) -> tuple[Endpoint, ...]:
    """The advertised addresses: with port 0 the one that was really bound, without a host this machine's name."""
    return tuple(
        endpoint._replace(host=endpoint.host or socket.getfqdn(), port=endpoint.port or ports[endpoint.listener])
        for endpoint in listeners.advertised
    )


def seconds_since_process_start() -> float:
    """How long ago the kernel made this process, imports included; 0 where it does not tell."""
    try:
        with open("/proc/self/stat", "rb") as file:
            # The second field is the program's name, in parentheses, and may hold anything; the 22nd is the start.
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


def _start_thread() -> None:
    """What a thread does that shall only be there."""


def _collect_young_garbage_only() -> None:
    """While the broker starts: what it makes then stays, and hardly any of it is in cycles.

    A look through everything would hold the interpreter for a quarter of a second where there are many logs, in a
    session with ZooKeeper that has begun.
    """
    gc.set_threshold(_YOUNG_OBJECTS, 1_000, 1_000)


def _keep_what_is_alive() -> None:
    """What is alive now stays: looking through it again and again would only make pauses.

    Requests leave hardly any cycles behind, so collecting less often costs no memory worth mentioning.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, _MIDDLE_EVERY, _OLD_EVERY)


def _read_through(part: FileSlice) -> None:
    """Read a range and drop it: afterwards it is in the page cache."""
    position, end = part.position, part.position + part.size
    while position < end:
        got = len(part.file.pread(min(1 << 18, end - position), position))
        if got == 0:
            return
        position += got


def run(server: Server) -> int:
    """Run a server on the fastest loop there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(server.run())
    if sys.version_info >= (3, 12):
        return asyncio.run(server.run(), loop_factory=uvloop.new_event_loop)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(server.run())


async def problem_with(endpoint: Endpoint) -> str | None:
    """Why a connection to the advertised address fails from here; None if it works."""
    try:
        async with asyncio.timeout(_REACH_TIMEOUT_S):
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            writer.close()
            await writer.wait_closed()
    except TimeoutError:
        return f"no answer within {_REACH_TIMEOUT_S:g} s"
    except OSError as problem:
        return problem.strerror or str(problem)
    return None


async def explain_unreachable(advertised: tuple[Endpoint, ...]) -> None:
    """Connect to each advertised address as a client would, and say what to do where that fails."""
    for endpoint in advertised:
        problem = await problem_with(endpoint)
        if problem is not None:
            log.warning(
                "advertised listener %s is not reachable from here (%s): unless clients reach it another way, "
                "set advertised.listeners to %s://<a name or address that they can reach>:<port>",
                endpoint,
                problem,
                endpoint.listener,
            )
