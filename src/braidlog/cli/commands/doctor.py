"""`braidlog doctor`: what is wrong with a data directory, its settings or a running cluster, and what to do."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from braidlog.cli.checks.data_directories import (
    DataDirectory,
    check_clock,
    check_directory,
    check_identity,
    stored_cluster_id,
)
from braidlog.cli.checks.finding import OK, PROBLEM, WARNING, Finding, ok, problem, warning
from braidlog.cli.checks.listening import check_listeners, check_open_files
from braidlog.cli.cli_terms import in_cli_terms
from braidlog.cli.command_tree import BROKER_SETTING, Placeholder
from braidlog.cli.options import (
    add_client_config,
    add_output,
    client_properties,
    path_name,
    resolve_connection,
    timeout_seconds,
)
from braidlog.cli.output import show
from braidlog.cli.watching.metrics_pages import add_metrics
from braidlog.config.broker import BrokerSettings
from braidlog.config.listeners import parse_listeners
from braidlog.config.sources import load_settings
from braidlog.config.unsupported_settings import UnsupportedSettingsError
from braidlog.core.errors import BraidlogError, UserError
from braidlog.core.protocol_errors import InvalidConfigError, ProtocolError

_ANSWER_S: Final = 5.0
_COLOURS: Final = {OK: "32", WARNING: "33", PROBLEM: "31"}

_DESCRIPTION: Final = """\
Look for the classic troubles and say what to do about each. Changes nothing.

With --data or --config the files, ports and limits of a broker on this machine are looked at, running or not;
with --bootstrap a running cluster is, as a client sees it. With neither: the cluster at 127.0.0.1:9092.
Exit code 1 when there is a problem; warnings do not count.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    parser.add_argument("--data", metavar="DIR", type=path_name, help="the broker's data directory (as for serve)")
    parser.add_argument(
        "--config", metavar="FILE", type=path_name, help="the broker's server.properties (as for serve)"
    )
    parser.add_argument(
        "--set",
        metavar=Placeholder("KEY=VALUE", BROKER_SETTING),
        action="append",
        default=[],
        help="another of its settings (as for serve)",
    )
    parser.add_argument("--bootstrap", "--bootstrap-server", metavar="HOST:PORT", help="a broker of a running cluster")
    parser.add_argument(
        "--request-timeout", metavar="SECONDS", type=timeout_seconds, help="for each answer (default 5)"
    )
    add_metrics(parser)
    add_client_config(parser, config_is_taken=True)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    is_local = bool(options.data or options.config or options.set)
    settings = client_properties(options)
    # A profile that only the environment chose does not turn a look at files into one at a cluster.
    is_named = bool(options.profile or options.command_config or options.client_settings)
    names_cluster = options.bootstrap is not None or (is_named and "bootstrap.servers" in settings)
    wants_cluster = names_cluster or not is_local
    findings: list[Finding] = []
    cluster_id: str | None = None
    if wants_cluster:
        resolve_connection(options, settings, _ANSWER_S)
        cluster_findings, cluster_id = _check_cluster(options, settings)
        findings += cluster_findings
    findings += _check_local(options, cluster_id) if is_local else [check_open_files(0, None)]
    _show(findings, options.output)
    return 1 if any(finding.status == PROBLEM for finding in findings) else 0


def _check_cluster(options: argparse.Namespace, settings: Mapping[str, Any]) -> tuple[list[Finding], str | None]:
    from braidlog.cli.checks.live_cluster import check_cluster
    from braidlog.client.admin.cluster_connection import ClusterConnection

    try:
        with ClusterConnection(options.bootstrap, options.request_timeout, settings) as cluster:
            return check_cluster(cluster, options.metrics), cluster.cluster_id
    except (BraidlogError, ProtocolError) as reason:
        message, _, advice = in_cli_terms(str(reason)).partition("; ")
        return [problem("connection", message, advice or "see that the broker runs and --bootstrap is right")], None


def _check_local(options: argparse.Namespace, cluster_id: str | None) -> list[Finding]:
    assignments = ([f"log.dirs={options.data}"] if options.data else []) + options.set
    findings: list[Finding] = []
    try:
        settings, warnings = load_settings(options.config, os.environ, assignments)
    except UnsupportedSettingsError as refused:
        settings, warnings = refused.settings, refused.warnings
        findings += (problem("settings", refusal.text, refusal.advice) for refusal in refused.refusals)
    except UserError as reason:
        return [problem("settings", str(reason), "correct it; docs/SETTINGS.md lists every setting")]
    findings += (warning("settings", text, "remove or correct it") for text in warnings)
    findings += _check_security(settings)
    findings += _check_policies(settings)
    if not findings:
        findings.append(ok("settings", "all are known and allowed"))
    directories: list[DataDirectory] = []
    for path in settings.log_dirs:
        found, about = check_directory(path)
        findings += about
        if found is not None:
            directories.append(found)
    holder = next((each.holder for each in directories if each.holder is not None), None)
    findings.append(_check_identity(settings, directories, cluster_id))
    findings += _once(check_listeners(settings, holder))
    findings.append(check_open_files(sum(len(each.partitions) for each in directories), holder))
    findings.append(check_clock(directories))
    return findings


def _check_security(settings: BrokerSettings) -> list[Finding]:
    """Whether TLS and SASL listeners have what they need, in the words with which `serve` would end."""
    from braidlog.broker.authentication.listener_security import check_listener

    try:
        listeners = parse_listeners(settings)
        findings: list[Finding] = []
        for name, protocol in listeners.protocols.items():
            for text in check_listener(settings, name, protocol):
                message, _, advice = text.partition("; ")
                findings.append(warning("settings", message, advice))
    except InvalidConfigError:
        return []  # the check of the listeners says so
    except UserError as reason:
        message, _, advice = str(reason).partition("; ")
        return [problem("settings", message, advice or "correct it; docs/SETTINGS.md lists every setting")]
    return findings


def _check_policies(settings: BrokerSettings) -> list[Finding]:
    from braidlog.broker.policies import check_policies

    try:
        check_policies(settings)
    except UserError as reason:
        message, _, advice = str(reason).partition("; ")
        return [problem("settings", message, advice or "correct it; docs/OPERATIONS.md, Policies, has an example")]
    return []


def _check_identity(settings: BrokerSettings, directories: Sequence[DataDirectory], cluster_id: str | None) -> Finding:
    store = settings.get_str("braidlog.store.dir") or settings.log_dirs[0]
    try:
        stored = stored_cluster_id(store)
    except BraidlogError as reason:
        return problem("identity", f"the coordination store cannot be read: {reason}", "restore it from a backup")
    return check_identity(directories, settings.broker_id, stored, cluster_id)


def _once(findings: Sequence[Finding]) -> list[Finding]:
    return list(dict.fromkeys(findings))


def _show(findings: Sequence[Finding], output: str) -> None:
    if output == "json":
        show([finding._asdict() for finding in findings], "json")
        return
    paint = _painter()
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        print(f"{paint(finding.status)}  {finding.check.ljust(width)}  {finding.text}")
        if finding.advice:
            print(f"{' ' * (len(WARNING) + width + 4)}→ {finding.advice}")
    problems = sum(finding.status == PROBLEM for finding in findings)
    warnings = sum(finding.status == WARNING for finding in findings)
    print(f"{len(findings)} checks, {problems} problem{'s'[: problems != 1]}, {warnings} warning{'s'[: warnings != 1]}")


def _painter() -> Callable[[str], str]:
    """Statuses in colour where a person looks on (and NO_COLOR is not set)."""
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def paint(status: str) -> str:
        padded = status.ljust(len(WARNING))
        return f"\x1b[{_COLOURS[status]}m{padded}\x1b[0m" if coloured else padded

    return paint
