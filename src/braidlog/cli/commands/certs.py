"""`braidlog certs init`: an authority and certificates for trying TLS out, and the settings that use them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from braidlog.cli.options import add_output, whole_number
from braidlog.cli.output import report
from braidlog.core.errors import UserError
from braidlog.security.certificate_authority import CertificateAuthority

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_LONGEST_DAYS: Final = 3650
_PORT: Final = 9093
# A common name is no longer.
_LONGEST_NAME: Final = 64
_SECRET: Final = 0o600
_PUBLIC: Final = 0o644
_EPILOG: Final = f"""\
The authority's key is in DIR/ca.key: who has it can be any broker and any client. For production, have certificates
signed by the authority that your company has.

examples:
  braidlog certs init tls                                 for brokers and clients on this machine
  braidlog certs init tls --host broker1.example.com      also for who connects to that name
Names and addresses of this machine ({", ".join(_LOOPBACK)}) are always in the broker's certificate.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")
    init = verbs.add_parser("init", help="make an authority, and a certificate for a broker and for a client")
    init.epilog = _EPILOG
    init.add_argument("directory", metavar="DIR", help="where the files go; none of them may be there")
    init.add_argument(
        "--host", action="append", default=[], metavar="HOST", help="a name or address of the broker; may be repeated"
    )
    init.add_argument(
        "--client", default="client", type=client_name, metavar="NAME", help="who the client is (default: %(default)s)"
    )
    init.add_argument("--days", type=days, default=365, metavar="N", help="how long they are valid (default: 365)")
    init.set_defaults(run=run_init)
    add_output(init)


def client_name(text: str) -> str:
    if not text.strip() or len(text) > _LONGEST_NAME:
        raise argparse.ArgumentTypeError(f"the name of a client has 1 to {_LONGEST_NAME} characters")
    return text


def days(text: str) -> int:
    return whole_number(text, 1, _LONGEST_DAYS, "a number of days")


def run_init(options: argparse.Namespace) -> int:
    directory = Path(options.directory).absolute()
    paths = {name: directory / name for name in ("ca.crt", "ca.key", "broker.pem", "client.pem")}
    _refuse_to_overwrite(paths)
    hosts = list(dict.fromkeys([*options.host, *_LOOPBACK]))
    authority = CertificateAuthority("braidlog certs init", datetime.now(UTC), timedelta(days=options.days))
    try:
        broker = authority.issue(hosts[0][:_LONGEST_NAME], hosts)
    except ValueError as problem:
        raise UserError(f"--host: {problem}") from problem
    client = authority.issue(options.client)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _write(paths["ca.key"], authority.own.key, _SECRET)
        _write(paths["broker.pem"], broker.bundle, _SECRET)
        _write(paths["client.pem"], client.bundle, _SECRET)
        _write(paths["ca.crt"], authority.own.certificate, _PUBLIC)
    except OSError as problem:
        raise UserError(f"{problem.filename or directory}: {problem.strerror}") from problem
    settings = _settings(paths, hosts[0])
    files = {name: str(path) for name, path in paths.items()}
    report(_text(directory, settings, options), {"files": files, **settings}, options.output)
    return 0


def _refuse_to_overwrite(paths: Mapping[str, Path]) -> None:
    for path in paths.values():
        if os.path.lexists(path):
            raise UserError(f"{path} exists, and nothing is overwritten: name another directory, or move it away")


def _write(path: Path, text: str, mode: int) -> None:
    """Others never see it with more rights than it keeps."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)


def _settings(paths: Mapping[str, Path], host: str) -> dict[str, dict[str, str]]:
    trusted, own = str(paths["ca.crt"]), str(paths["client.pem"])
    address = f"[{host}]:{_PORT}" if ":" in host else f"{host}:{_PORT}"
    return {
        "broker": {
            "listeners": f"SSL://{address}",
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(paths["broker.pem"]),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": trusted,
            "ssl.client.auth": "required",
        },
        "client": {
            "bootstrap.servers": address,
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": trusted,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": own,
        },
        "librdkafka": {
            "bootstrap.servers": address,
            "security.protocol": "SSL",
            "ssl.ca.location": trusted,
            "ssl.certificate.location": own,
            "ssl.key.location": own,
        },
    }


def _text(directory: Path, settings: Mapping[str, Mapping[str, str]], options: Any) -> str:
    titles = {
        "broker": "the broker: braidlog serve --config broker.properties (without ssl.client.auth no client needs one)",
        "client": "Java clients, and braidlog's own: braidlog topics list --config client.properties",
        "librdkafka": "kcat, confluent-kafka and others on librdkafka",
    }
    lines = [
        f"# {directory} has an authority (ca.crt, ca.key), a broker's certificate (broker.pem) and one of the client "
        f"{options.client} (client.pem), each with its key; valid for {options.days} days"
    ]
    for part, title in titles.items():
        lines += ["", f"# {title}", *(f"{key}={value}" for key, value in settings[part].items())]
    return "\n".join(lines)
