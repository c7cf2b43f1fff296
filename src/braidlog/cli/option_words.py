"""Settings that clients speak of, as the options that stand for them on the command line."""

from __future__ import annotations

from typing import Final

_OPTIONS: Final = (
    ("bootstrap.servers", "--bootstrap"),
    ("(request.timeout.ms)", "(--request-timeout gives it longer)"),
    (": Registry(url, user=, password=)", ", in $BRAIDLOG_SCHEMA_REGISTRY_USER_INFO or as basic.auth.user.info"),
    ("; give ca_file=", "; name those to trust with -X schema.registry.ssl.ca.location=FILE"),
    ("the registry's ca_file", "schema.registry.ssl.ca.location"),
)


def in_options(message: str) -> str:
    for setting, option in _OPTIONS:
        message = message.replace(setting, option)
    return message
