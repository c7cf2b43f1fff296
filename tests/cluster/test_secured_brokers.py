"""Brokers copy, elect and are told over a listener that speaks TLS and wants a login, or a certificate."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import braidlog
from braidlog.local_cluster.zookeeper import ZooKeeper
from support.certificates import Authority
from support.cluster import agreed_view, start_cluster
from support.eventually import eventually
from support.secured_brokers import MUTUAL, PASSWORD, PLAIN, SCRAM, TOKENS, secure
from support.token_issuer import Issuer, key_set

WITHIN_S = 60.0


def create_user(connect: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "braidlog", "users", *words, "--zookeeper", connect, "--password-env", "PASSWORD"]
    environment = {**os.environ, "PASSWORD": PASSWORD}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def tokens(directory: Path) -> dict[str, str]:
    """A token for the brokers, and the keys of its issuer."""
    issuer, now = Issuer(), time.time()
    (directory / "token").write_text(issuer.token({"sub": "broker", "iat": now, "exp": now + 3600}))
    (directory / "keys").write_text(key_set(issuer.published()))
    prefix = "listener.name.brokers.oauthbearer.sasl.oauthbearer."
    return {
        f"{prefix}token.endpoint.url": (directory / "token").as_uri(),
        f"{prefix}jwks.endpoint.url": (directory / "keys").as_uri(),
    }


@pytest.mark.parametrize(
    "security",
    [PLAIN, SCRAM, TOKENS, MUTUAL],
    ids=["PLAIN over TLS", "SCRAM over TLS", "OAUTHBEARER over TLS", "mutual TLS"],
)
def test_brokers_trust_each_other(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path, security: Mapping[str, str]
) -> None:
    connect = new_connect()
    if security is SCRAM:
        # Before any broker is there to create its user.
        done = create_user(connect, "create", "broker")
        assert done.stdout == "user broker created (SCRAM-SHA-512)\n", done.stderr
        again = create_user(connect, "create", "broker")
        assert (again.returncode, "`braidlog users alter` changes it" in again.stderr) == (1, True)
    running = start_cluster(zookeeper, tmp_path / "cluster", 2, {"zookeeper.connect": connect})
    more = tokens(tmp_path) if security is TOKENS else {}
    secure(running, {**security, **more}, tmp_path / "authority")
    with running:
        agreed_view(running.brokers, lambda view: len(view.brokers) == 2, WITHIN_S)
        first = running.brokers[0]
        with braidlog.Admin(bootstrap_servers=first.bootstrap_servers) as admin:
            admin.create_topics([braidlog.NewTopic("copied", 4, 2)]).raise_for_errors()
        agreed_view(running.brokers, lambda view: set(view.leaders.get("copied", ())) == view.brokers, WITHIN_S)
        # acks=all: each record is on both brokers when it is acknowledged.
        with braidlog.Producer(bootstrap_servers=first.bootstrap_servers, acks="all") as producer:
            sent = [producer.send("copied", value=b"%d" % number, partition=number % 4) for number in range(100)]
            assert sorted({each.result(WITHIN_S).partition for each in sent}) == [0, 1, 2, 3]


def test_brokers_show_each_other_their_new_certificates(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path
) -> None:
    """The key and its authority are replaced under running brokers; none needs a restart for it."""
    running = start_cluster(zookeeper, tmp_path / "cluster", 2, {"zookeeper.connect": new_connect()})
    old, identity = secure(running, MUTUAL, tmp_path / "old")
    new = Authority(tmp_path / "new", "next authority")

    def replace(file: Path, text: str) -> None:
        seen = [broker.log(1000).count("certificates have changed") for broker in running.brokers]
        file.write_text(text)
        for broker, before in zip(running.brokers, seen, strict=True):
            eventually(lambda b=broker, n=before: b.log(1000).count("certificates have changed") > n, WITHIN_S)

    with running:
        agreed_view(running.brokers, lambda view: len(view.brokers) == 2, WITHIN_S)
        replace(old.certificate, old.certificate.read_text() + new.certificate.read_text())
        replace(identity.bundle, new.issue("broker", "127.0.0.1").bundle.read_text())
        replace(old.certificate, new.certificate.read_text())
        # Every connection to and from this one is new, and what was trusted before is not any more.
        running.brokers[1].restart()
        agreed_view(running.brokers, lambda view: len(view.brokers) == 2, WITHIN_S)
        first = running.brokers[0]
        with braidlog.Admin(bootstrap_servers=first.bootstrap_servers) as admin:
            admin.create_topics([braidlog.NewTopic("copied", 4, 2)]).raise_for_errors()
        agreed_view(running.brokers, lambda view: set(view.leaders.get("copied", ())) == view.brokers, WITHIN_S)
        with braidlog.Producer(bootstrap_servers=first.bootstrap_servers, acks="all") as producer:
            sent = [producer.send("copied", value=b"%d" % number, partition=number % 4) for number in range(20)]
            assert sorted({each.result(WITHIN_S).partition for each in sent}) == [0, 1, 2, 3]
