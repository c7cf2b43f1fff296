"""Who this broker is to the others of its cluster, and whether they would do what it asks.

Brokers send each other what only they may ask for (ClusterAction on the cluster). One whose principal may not do that
gets neither copies of partitions nor news of the cluster from brokers that have an authorizer.
"""

from __future__ import annotations

from braidlog.config.broker import BrokerSettings
from braidlog.config.listeners import PLAINTEXT
from braidlog.core.errors import UserError
from braidlog.core.principal import USER
from braidlog.net.channel import ANONYMOUS
from braidlog.security.acls import (
    CLUSTER_RESOURCE,
    WILDCARD_PRINCIPAL,
    AclFilter,
    AclOperation,
    AclRules,
    PatternType,
    Permission,
)


def own_principal(settings: BrokerSettings, listener: str, protocol: str) -> str | None:
    """As rules write it; None where only the others can tell (a token's or a ticket's name)."""
    if protocol == PLAINTEXT:
        return f"{USER}:{ANONYMOUS}"
    name = _by_login(settings, listener) if protocol.startswith("SASL_") else _by_certificate(settings, listener)
    return None if name is None else f"{USER}:{name}"


def _by_login(settings: BrokerSettings, listener: str) -> str | None:
    from braidlog.security.jaas import parse_jaas

    mechanism = str(settings.get_for_listener(listener, "sasl.mechanism.inter.broker.protocol"))
    login = settings.get_for_mechanism(listener, mechanism, "sasl.jaas.config")
    if not isinstance(login, str) or mechanism in ("OAUTHBEARER", "GSSAPI"):
        return None
    try:
        return parse_jaas(login).options.get("username")
    except UserError:
        return None  # who connects to the others says what is wrong with it


def _by_certificate(settings: BrokerSettings, listener: str) -> str | None:
    from braidlog.broker.authentication.listener_security import certificate_names
    from braidlog.security.ssl_principals import parse_mapping_rules

    if settings.get_for_listener(listener, "ssl.client.auth") == "none":
        return ANONYMOUS
    shown = certificate_names(settings, listener)
    if shown is None:
        return None
    mapper = parse_mapping_rules(str(settings.get_for_listener(listener, "ssl.principal.mapping.rules")))
    return mapper.name_of(shown.distinguished_name)


def cluster_action_problem(rules: AclRules, principal: str | None) -> str | None:
    """Why other brokers with these rules would refuse this one; None if they would not, or that is not known.

    From which address it connects to them is for them to see: a rule for any host counts here.
    """
    if principal is None or principal in rules.super_users:
        return None
    about = rules.find(AclFilter(CLUSTER_RESOURCE.type, CLUSTER_RESOURCE.name, pattern_type=PatternType.MATCH))
    if not about and rules.allow_if_none_found:
        return None
    for acl in about:
        if (
            acl.permission == Permission.ALLOW
            and acl.principal in (principal, WILDCARD_PRINCIPAL)
            and acl.operation in (AclOperation.ALL, AclOperation.CLUSTER_ACTION)
        ):
            return None
    return (
        f"this broker is {principal} to the others of its cluster, which would refuse its requests: add {principal} to "
        f"super.users on every broker, or `braidlog acls add --cluster --operation ClusterAction --allow-principal "
        f"'{principal}'`"
    )
