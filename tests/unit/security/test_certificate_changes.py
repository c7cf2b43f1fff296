from __future__ import annotations

import pytest

from braidlog.core.errors import UserError
from braidlog.security.certificate_changes import CertificateNames, check_change, names_of

BEFORE = CertificateNames("CN=broker", frozenset({"DNS:localhost", "DNS:b1.example.com"}))


def check(after: CertificateNames, *, dn: bool = False, san: bool = False) -> None:
    check_change(BEFORE, after, allow_dn_changes=dn, allow_san_changes=san)


def test_names_are_those_of_python() -> None:
    decoded = {
        "subject": ((("organizationName", "example"),), (("commonName", "broker"),)),
        "subjectAltName": (("DNS", "localhost"), ("IP Address", "127.0.0.1")),
    }
    assert names_of(decoded) == ("CN=broker,O=example", {"DNS:localhost", "IP Address:127.0.0.1"})


def test_the_same_names_and_more_of_them() -> None:
    check(BEFORE)
    check(BEFORE._replace(alternatives=BEFORE.alternatives | {"DNS:b2.example.com"}))


def test_another_name() -> None:
    other = BEFORE._replace(distinguished_name="CN=other")
    with pytest.raises(UserError, match=r"that of CN=other.*that of CN=broker.*ssl\.allow\.dn\.changes"):
        check(other, san=True)
    check(other, dn=True)


def test_fewer_hosts() -> None:
    fewer = BEFORE._replace(alternatives=frozenset({"DNS:localhost"}))
    with pytest.raises(UserError, match=r"not for DNS:b1\.example\.com.*ssl\.allow\.san\.changes"):
        check(fewer, dn=True)
    check(fewer, san=True)
