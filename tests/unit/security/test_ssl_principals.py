"""Names of certificates' owners, with the examples of Kafka's documentation."""

from __future__ import annotations

import pytest

from braidlog.core.errors import UserError
from braidlog.security.ssl_principals import NoMatchingRuleError, distinguished_name, parse_mapping_rules

ALICE = {
    "subject": (
        (("countryName", "US"),),
        (("stateOrProvinceName", "CA"),),
        (("organizationName", "Example, Inc."),),
        (("organizationalUnitName", "ServiceUsers"),),
        (("commonName", "Alice"),),
    )
}


def test_a_name_as_java_writes_it() -> None:
    assert distinguished_name(ALICE) == "CN=Alice,OU=ServiceUsers,O=Example\\, Inc.,ST=CA,C=US"
    assert distinguished_name({}) == ""
    both = {"subject": ((("userId", "u"), ("commonName", "#x ")),)}
    assert distinguished_name(both) == "UID=u+CN=\\#x\\ "
    mail = {"subject": ((("emailAddress", "a@b.c"),),)}
    assert distinguished_name(mail) == "1.2.840.113549.1.9.1=#16056140622e63"


RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        ("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        ("cn=duke,o=x", "DUKE"),
        ("O=nobody", "O=nobody"),
    ],
)
def test_the_first_rule_that_matches_counts(name: str, principal: str) -> None:
    assert parse_mapping_rules(RULES).name_of(name) == principal


@pytest.mark.parametrize("text", ["", "DEFAULT", " DEFAULT "])
def test_without_rules_the_name_stays(text: str) -> None:
    assert parse_mapping_rules(text).name_of("CN=a,O=b") == "CN=a,O=b"


def test_no_rule_matches() -> None:
    with pytest.raises(NoMatchingRuleError, match="add DEFAULT"):
        parse_mapping_rules("RULE:^CN=(x)$/$1/").name_of("CN=y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("RULE:a", "'RULE:a' does not begin with a rule"),
        ("DEFAULT,nonsense", "'nonsense' does not begin"),
        ("RULE:(/x/", "is no pattern"),
        ("RULE:(a)/$2/", "fewer groups"),
        ("RULE:a/b/X", "does not begin with a rule"),
    ],
)
def test_a_rule_that_is_none(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_mapping_rules(text)
