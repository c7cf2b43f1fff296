"""Delegation tokens where Apache Kafka 3.9 and our brokers share an ensemble and a secret: each honours the other's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import NONE
from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.wire.generated.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from braidlog.wire.generated.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from braidlog.wire.generated.expire_delegation_token import ExpireDelegationTokenRequest
from braidlog.wire.generated.renew_delegation_token import RenewDelegationTokenRequest
from support.broker import BRAIDLOG, KAFKA
from support.eventually import eventually
from support.mixed_cluster import MixedCluster, read_node, zookeeper_client
from support.ports import lasting_port
from support.raw import RawConnection, as_plain
from support.raw_logins import log_in, log_in_with_token

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka"), pytest.mark.timeout(600)]

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.clients.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a" user_owl="o" user_eve="e";'
    ),
    "listener.name.clients.scram-sha-256.sasl.jaas.config": SCRAM,
    "listener.name.clients.scram-sha-512.sasl.jaas.config": SCRAM,
    "delegation.token.secret.key": "signed-with-this",
    "delegation.token.max.lifetime.ms": "7200000",
    "delegation.token.expiry.time.ms": "3600000",
}
KNOWN_WITHIN_S = 60.0


class Tokens:
    """The cluster, and the port of each kind on which clients log in."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.cluster = cluster
        self.ports = {KAFKA: lasting_port(), BRAIDLOG: lasting_port()}
        members = (cluster.kafka, self.ports[KAFKA]), (cluster.ours[0], self.ports[BRAIDLOG])
        for member, port in members:
            member.settings |= SETTINGS | {
                "listeners": f"PLAINTEXT://127.0.0.1:{member.port},CLIENTS://127.0.0.1:{port}"
            }

    def described(self, kind: str) -> dict[str, Any]:
        """As alice sees them there, by id."""
        with log_in(self.ports[kind], "alice", "a") as raw:
            answered: Any = raw.ask("DescribeDelegationToken", 3, DescribeDelegationTokenRequest(owners=None))
            assert answered.error_code == NONE
            return {each.token_id: as_plain(each) for each in answered.tokens}

    def gets_in(self, kind: str, token: Any, mechanism: str = "SCRAM-SHA-256") -> bool:
        with RawConnection(self.ports[kind]) as raw:
            answered = log_in_with_token(raw, token.token_id, bytes(token.hmac), mechanism)
            if answered.error_code != NONE:
                assert answered.error_code == errors.SaslAuthenticationFailedError.code
                return False
            assert 0 < answered.session_lifetime_ms <= 3_600_000
            # A token does not beget tokens.
            refused: Any = raw.ask("CreateDelegationToken", 3, new_token())
            assert refused.error_code == errors.DelegationTokenRequestNotAllowedError.code
            return True


@pytest.fixture(scope="module")
def tokens(
    apache_kafka: object,
    zookeeper: ZooKeeper,
    new_connect: Callable[[], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Tokens]:
    cluster = MixedCluster(zookeeper, tmp_path_factory.mktemp("tokens"), new_connect(), {})
    made = Tokens(cluster)
    try:
        cluster.kafka.start()
        cluster.ours[0].start()
        cluster.agreed()
        yield made
    finally:
        cluster.end()


def new_token(*renewers: str, kind: str = "User", owner: str | None = None) -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for name in renewers],
        max_lifetime_ms=-1,
    )


def renewal(hmac: bytes, period_ms: int = -1) -> RenewDelegationTokenRequest:
    return RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)


def end(hmac: bytes, period_ms: int = -1) -> ExpireDelegationTokenRequest:
    return ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)


@pytest.mark.parametrize(("maker", "other"), [(KAFKA, BRAIDLOG), (BRAIDLOG, KAFKA)])
def test_a_token_of_one_is_honoured_by_the_other(tokens: Tokens, maker: str, other: str) -> None:
    with log_in(tokens.ports[maker], "alice", "a") as alice:
        token: Any = alice.ask("CreateDelegationToken", 3, new_token("owl"))
    assert token.error_code == NONE
    eventually(lambda: token.token_id in tokens.described(other), KNOWN_WITHIN_S)
    assert tokens.described(other) == tokens.described(maker)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert tokens.gets_in(maker, token, mechanism)
        assert tokens.gets_in(other, token, mechanism)
    # Renewed there, seen here.
    with log_in(tokens.ports[other], "owl", "o") as owl:
        renewed: Any = owl.ask("RenewDelegationToken", 2, renewal(token.hmac, 1_800_000))
        assert renewed.error_code == NONE
    moved = renewed.expiry_timestamp_ms
    eventually(lambda: tokens.described(maker)[token.token_id]["expiry_timestamp"] == moved, KNOWN_WITHIN_S)
    # Ended there, unknown here.
    with log_in(tokens.ports[other], "alice", "a") as alice:
        ended: Any = alice.ask("ExpireDelegationToken", 2, end(token.hmac))
        assert ended.error_code == NONE
    eventually(lambda: tokens.described(maker) == {}, KNOWN_WITHIN_S)
    assert not tokens.gets_in(maker, token)
    assert not tokens.gets_in(other, token)


def test_both_write_the_same(tokens: Tokens) -> None:
    nodes: list[dict[str, Any]] = []
    notices: list[Any] = []
    for kind in (KAFKA, BRAIDLOG):
        with (
            zookeeper_client(tokens.cluster.connect) as client,
            log_in(tokens.ports[kind], "alice", "a") as alice,
        ):
            token: Any = alice.ask("CreateDelegationToken", 3, new_token("owl", "CN=a b,O=ü*~"))
            node = read_node(client, f"/delegation_token/tokens/{token.token_id}")
            assert node.data["tokenId"] == token.token_id
            assert node.data["maxTimestamp"] - node.data["issueTimestamp"] == 7_200_000
            assert node.data["expiryTimestamp"] - node.data["issueTimestamp"] == 3_600_000
            changing = ("tokenId", "issueTimestamp", "maxTimestamp", "expiryTimestamp")
            nodes.append({key: value for key, value in node.data.items() if key not in changing})
            last = max(client.get_children("/delegation_token/token_changes"))
            assert client.get(f"/delegation_token/token_changes/{last}")[0] == token.token_id.encode()
            notices.append(last.rstrip("0123456789"))
            alice.ask("ExpireDelegationToken", 2, end(token.hmac))
    assert nodes[0] == nodes[1]
    assert notices == ["token_change_", "token_change_"]


def test_both_refuse_the_same(tokens: Tokens) -> None:
    answers = {kind: refusals(tokens.ports[kind], tokens.cluster, kind) for kind in (KAFKA, BRAIDLOG)}
    assert answers[BRAIDLOG] == answers[KAFKA]
    assert answers[KAFKA]["by a stranger"] == errors.DelegationTokenOwnerMismatchError.code


def refusals(port: int, cluster: MixedCluster, kind: str) -> dict[str, int]:
    """The error codes of a broker, by what was tried."""
    found: dict[str, int] = {}

    def ask(what: str, raw: RawConnection, name: str, request: Any) -> Any:
        answered: Any = raw.ask(name, 3 if name.startswith(("Create", "Describe")) else 2, request)
        found[what] = answered.error_code
        return answered

    with log_in(port, "alice", "a") as alice, log_in(port, "eve", "e") as eve:
        token = ask("made", alice, "CreateDelegationToken", new_token())
        ask("a group as renewer", alice, "CreateDelegationToken", new_token("owls", kind="Group"))
        ask("by a stranger", eve, "RenewDelegationToken", renewal(token.hmac))
        ask("ended by a stranger", eve, "ExpireDelegationToken", end(token.hmac))
        ask("renewal of none", alice, "RenewDelegationToken", renewal(b"none"))
        ask("end of none", alice, "ExpireDelegationToken", end(b"none"))
        for_alice = ask("for another", eve, "CreateDelegationToken", new_token(owner="alice"))
        assert for_alice.principal_name == "alice"
        assert for_alice.token_requester_principal_name == "eve"
        ask("renewed by its requester", eve, "RenewDelegationToken", renewal(for_alice.hmac))
        seen = ask("everything", eve, "DescribeDelegationToken", DescribeDelegationTokenRequest(owners=None))
        found["tokens seen by a stranger"] = len(seen.tokens)
        of_eve = DescribeDelegationTokenRequest(
            owners=[DescribeDelegationTokenOwner(principal_type="User", principal_name="eve")]
        )
        found["tokens of eve"] = len(ask("her own", eve, "DescribeDelegationToken", of_eve).tokens)
        none = ask("nobody's", eve, "DescribeDelegationToken", DescribeDelegationTokenRequest(owners=[]))
        found["tokens of nobody"] = len(none.tokens)
        # One that has ended can still be removed, and nothing else.
        ask("ends now", alice, "ExpireDelegationToken", end(token.hmac, 0))
        eventually(lambda: is_over(alice, token.hmac), 30)
        ask("renewed after its end", alice, "RenewDelegationToken", renewal(token.hmac))
        ask("ended after its end", alice, "ExpireDelegationToken", end(token.hmac, 10))
        ask("removed", alice, "ExpireDelegationToken", end(token.hmac))
        ask("removed as well", alice, "ExpireDelegationToken", end(for_alice.hmac))
        ask("removed twice", alice, "ExpireDelegationToken", end(token.hmac))
    open_port = cluster.kafka.port if kind == KAFKA else cluster.ours[0].port
    with RawConnection(open_port) as raw:
        ask("made without a login", raw, "CreateDelegationToken", new_token())
        ask("renewed without a login", raw, "RenewDelegationToken", renewal(b"x"))
        ask("ended without a login", raw, "ExpireDelegationToken", end(b"x"))
        ask("seen without a login", raw, "DescribeDelegationToken", DescribeDelegationTokenRequest(owners=None))
    return found


def is_over(alice: RawConnection, hmac: bytes) -> bool:
    """A renewal for no time ends a token again, until it has ended."""
    answered: Any = alice.ask("RenewDelegationToken", 2, renewal(hmac, 0))
    return bool(answered.error_code == errors.DelegationTokenExpiredError.code)
