"""What clients speak of (settings, calls of `Admin`), as the options and commands that stand for it."""

from __future__ import annotations

from typing import Final

_OPTIONS: Final = (
    ("bootstrap.servers", "--bootstrap"),
    ("(request.timeout.ms)", "(--request-timeout gives it longer)"),
    ("use the earliest or the latest", "use the earliest or the latest (--offset earliest)"),
    ("write with acks=1", "write with acks=1 (--acks 1)"),
    ("to see whether it will do", "to see whether it will do (--if-not-exists makes that no error)"),
    ("Admin.describe_configs(…, documentation=True)", "`braidlog configs describe --docs`"),
    ("Admin.describe_groups", "`braidlog groups describe --members`"),
    (": Registry(url, user=, password=)", ", in $BRAIDLOG_SCHEMA_REGISTRY_USER_INFO or as basic.auth.user.info"),
    ("; give ca_file=", "; name those to trust with -X schema.registry.ssl.ca.location=FILE"),
    ("the registry's ca_file", "schema.registry.ssl.ca.location"),
)


def in_cli_terms(message: str) -> str:
    for words, option in _OPTIONS:
        message = message.replace(words, option)
    return message
