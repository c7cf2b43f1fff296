"""What protection leaves: throughput and latency with SASL_SSL, an authorizer and quotas on, as shares of all off.

There are two brokers of each kind, one with everything on and one with nothing. The client of the first logs in over
TLS, may do what it does by rules of its own, beside many rules of others, and has quotas that it never reaches, so
that all is checked and counted and nothing is held back. Kafka's own shares stand beside ours.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from bench import programs
from bench.brokers import Broker, topic
from bench.measures import KAFKA, Better
from bench.scenarios.latency import RATE, SIZE, WARM_SECONDS
from bench.scenarios.security import LOGIN, PLAIN_TEXT, USER, Secured, certificates, running
from bench.session import LARGE_PARTITIONS, Session
from braidlog.client.admin import Acl, AclOperation, AclResourceType, Admin, PatternType, QuotaEntity

GROUP = "protection"
OFF, ON = "off", "on"
PREFIX = "protected-"
# Of other users, on other topics: they have to be passed over.
OTHER_RULES = 200
# Nothing on this machine comes near them.
QUOTAS = {"producer_byte_rate": 1e11, "consumer_byte_rate": 1e11, "request_percentage": 1e6}


def measure(session: Session) -> None:
    trusted, own = certificates(session.work)
    with ExitStack() as stack:
        brokers: list[dict[str, Secured]] = []
        for name in session.names:
            session.progress.show(f"{GROUP}: starting {name} twice")
            off = stack.enter_context(running(session, name, trusted, own))
            on = stack.enter_context(running(session, name, trusted, own, _protection(name)))
            _protect(on.broker)
            brokers.append({OFF: off, ON: on})
        for number in range(session.plan.rounds):
            for pair in brokers:
                session.progress.show(f"{GROUP}: round {number + 1} of {session.plan.rounds}, {pair[ON].broker.name}")
                _one_round(session, pair, number)


def _protection(name: str) -> dict[str, str]:
    standard = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    return {
        "authorizer.class.name": standard if name == KAFKA else "kafka.security.authorizer.AclAuthorizer",
        # The benchmark's own requests, and the broker's to itself.
        "super.users": "User:ANONYMOUS",
    }


def _protect(broker: Broker) -> None:
    rules = [_rule(AclOperation.READ, USER, PREFIX), _rule(AclOperation.WRITE, USER, PREFIX)]
    rules += [_rule(AclOperation.READ, f"user-{number}", f"{PREFIX}{number}-") for number in range(OTHER_RULES)]
    with Admin(bootstrap_servers=f"127.0.0.1:{broker.port}", client_id="bench-admin") as admin:
        admin.create_acls(rules).raise_for_errors()
        entity = QuotaEntity(user=USER)
        admin.alter_client_quotas({entity: QUOTAS}).raise_for_errors()
        # A broker of Kafka has them a moment after its controller.
        while entity not in admin.describe_client_quotas() or len(admin.describe_acls()) < len(rules):
            time.sleep(0.01)


def _rule(operation: AclOperation, user: str, prefix: str) -> Acl:
    return Acl(AclResourceType.TOPIC, prefix, f"User:{user}", operation, pattern_type=PatternType.PREFIXED)


def _one_round(session: Session, pair: dict[str, Secured], number: int) -> None:
    found = {state: _worked(session, secured, state, number) for state, secured in pair.items()}
    broker = pair[ON].broker
    for what, (value, unit, better) in found[ON].items():
        for state in (OFF, ON):
            session.add(broker, GROUP, f"{what}, {state}", found[state][what][0], unit, better)
        share = value / found[OFF][what][0]
        session.add(broker, GROUP, f"{what}: on / off", share, "×", better)


def _worked(session: Session, secured: Secured, state: str, number: int) -> dict[str, tuple[float, str, Better]]:
    way = LOGIN if state == ON else PLAIN_TEXT
    name = f"{PREFIX}{number}"
    found: dict[str, tuple[float, str, Better]] = {}
    common: dict[str, programs.Option] = {
        "brokers": f"127.0.0.1:{secured.ports[way]}",
        "topic": name,
        "properties": secured.properties(way),
    }
    count = session.plan.scaled(500, 60) * 1_000_000 // SIZE
    with topic(secured.broker, name, LARGE_PARTITIONS):
        for action, options in (("produce", {"size": SIZE, "acks": -1}), ("consume", {})):
            done = programs.run("load", action, count=count, partitions=LARGE_PARTITIONS, **options, **common)
            found[action] = done["bytes"] / 1e6 / done["seconds"], "MB/s", Better.HIGHER
    with topic(secured.broker, f"{name}-latency", 1):
        common["topic"] = f"{name}-latency"
        seconds = session.plan.scaled(10, 4)
        done = programs.run(
            "load", "latency", size=SIZE, rate=RATE, seconds=seconds, warm_seconds=WARM_SECONDS, **common
        )
    for key, what in (("produce", "produce to acknowledgement"), ("end_to_end", "produce to consumer")):
        for percentile in ("p50", "p99"):
            found[f"{what}, {percentile}"] = done[f"{key}_{percentile}_us"] / 1e3, "ms", Better.LOWER
    return found
