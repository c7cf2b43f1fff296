"""What a broker would listen on and tell its clients, and how many files it may open."""

from __future__ import annotations

import errno
import resource
import socket
from collections.abc import Callable
from typing import Final

from braidlog.cli.checks.finding import Finding, ok, problem, warning
from braidlog.cli.checks.processes import command_of, listener_on, open_files_count, open_files_limit
from braidlog.config.broker import BrokerSettings
from braidlog.config.listeners import parse_listeners, shared_with_brokers
from braidlog.core.protocol_errors import InvalidConfigError
from braidlog.core.types import Endpoint

# A log file, an offset index and a time index.
_FILES_PER_PARTITION: Final = 3
# What a broker should be able to hold besides its files: clients, each usually with a few connections.
_CONNECTIONS: Final = 1000
_FEWEST_FILES: Final = 256
_BUSY_SHARE: Final = 0.9

Resolve = Callable[[str, int], object]


def check_listeners(settings: BrokerSettings, broker: int | None) -> list[Finding]:
    """`broker` is the process that has the data open: then its listeners are bound already, by it."""
    try:
        listeners = parse_listeners(settings)
    except InvalidConfigError as reason:
        return [problem("listeners", str(reason.message), "correct the settings")]
    findings = [check_port(endpoint, broker) for endpoint in listeners.bound]
    findings += [check_advertised(endpoint) for endpoint in listeners.advertised]
    shared = shared_with_brokers(settings, listeners)
    if shared is not None:
        fault, _, advice = shared.partition("; ")
        findings.append(warning("listeners", fault, advice))
    return findings


def check_port(endpoint: Endpoint, broker: int | None = None) -> Finding:
    name = "port"
    if broker is not None:
        return ok(name, "a broker is running and has its ports")
    if endpoint.port == 0:
        return ok(name, "port 0 takes any that is free")
    where = f"{endpoint.host or '0.0.0.0'}:{endpoint.port}"
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((endpoint.host or "0.0.0.0", endpoint.port))
        except OSError as reason:
            return _port_problem(name, where, endpoint, reason)
    return ok(name, f"{where} is free")


def _port_problem(name: str, where: str, endpoint: Endpoint, reason: OSError) -> Finding:
    if reason.errno == errno.EADDRINUSE:
        pid = listener_on(endpoint.port)
        by = command_of(pid) if pid is not None else "a process that this user may not see"
        return problem(
            name, f"{where} is taken by {by}", "stop it, or listen elsewhere with --listen HOST:PORT or listeners"
        )
    if reason.errno == errno.EADDRNOTAVAIL:
        return problem(name, f"{endpoint.host} is not an address of this machine", "set listeners to one that is")
    if reason.errno == errno.EACCES:
        return problem(name, f"no permission to listen on {where}", "choose a port from 1024 up")
    return problem(name, f"cannot listen on {where}: {reason.strerror or reason}", "set listeners to another address")


def check_advertised(endpoint: Endpoint, resolve: Resolve = socket.getaddrinfo) -> Finding:
    """What is advertised must at least be a name that can be looked up."""
    name = "advertised listener"
    host = endpoint.host or socket.getfqdn()
    try:
        resolve(host, endpoint.port)
    except OSError as reason:
        return problem(
            name,
            f"the advertised host {host} cannot be looked up ({reason.strerror or reason})",
            f"set advertised.listeners to {endpoint.listener}://<a name that clients can look up>:{endpoint.port}",
        )
    return ok(name, f"clients connect to {host}:{endpoint.port}, which can be looked up")


def check_open_files(partitions: int, broker: int | None) -> Finding:
    """The limit of the running broker, or of what this shell would start."""
    limit = open_files_limit(broker) if broker is not None else None
    used = open_files_count(broker) if broker is not None else None
    if limit is None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit == resource.RLIM_INFINITY:
            return ok("open files", "there is no limit")
    return judge_open_files(limit, partitions, used)


def judge_open_files(limit: int, partitions: int, used: int | None = None) -> Finding:
    name = "open files"
    wanted = partitions * _FILES_PER_PARTITION + _CONNECTIONS
    advice = f"raise it: ulimit -n {max(wanted, 65536)}, or LimitNOFILE= in a systemd unit"
    in_use = "" if used is None else f", {used} in use"
    if limit < _FEWEST_FILES:
        return problem(name, f"a process may open only {limit} files{in_use}", advice)
    if used is not None and used > limit * _BUSY_SHARE:
        return problem(name, f"the broker has {used} of {limit} files open; new connections will fail", advice)
    if limit < wanted:
        return warning(
            name,
            f"a process may open {limit} files{in_use}; {partitions} partitions and {_CONNECTIONS} connections would "
            f"like {wanted}",
            advice,
        )
    return ok(name, f"a process may open {limit} files{in_use}")
