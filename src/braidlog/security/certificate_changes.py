"""What a listener's certificate may become while it runs: another key for the same names, or more of them (KIP-978)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from braidlog.core.errors import UserError
from braidlog.security.ssl_principals import distinguished_name


class CertificateNames(NamedTuple):
    distinguished_name: str
    # As in "DNS:localhost".
    alternatives: frozenset[str]


def names_of(certificate: Mapping[str, Any]) -> CertificateNames:
    """`certificate` is what Python's ssl module makes of one."""
    alternatives = frozenset(f"{kind}:{name}" for kind, name in certificate.get("subjectAltName", ()))
    return CertificateNames(distinguished_name(certificate), alternatives)


def check_change(
    before: CertificateNames, after: CertificateNames, *, allow_dn_changes: bool, allow_san_changes: bool
) -> None:
    """Raises UserError that names the setting which would allow it."""
    if before.distinguished_name != after.distinguished_name and not allow_dn_changes:
        raise UserError(
            f"the new certificate is that of {after.distinguished_name}, the old one that of "
            f"{before.distinguished_name}; a restart takes it, or ssl.allow.dn.changes=true"
        )
    missing = sorted(before.alternatives - after.alternatives)
    if missing and not allow_san_changes:
        raise UserError(
            f"the new certificate is not for {', '.join(missing)}, as the old one was; a restart takes it, or "
            "ssl.allow.san.changes=true"
        )
