"""Every api of a lone broker in every situation of rules, against what Kafka 3.9 answered (`authorization_probes`)."""

from __future__ import annotations

from braidlog.broker.requests.routes import INTER_BROKER as INTER_BROKER_ROUTES
from braidlog.broker.requests.routes import RESPONDING, RETURNING
from braidlog.wire.apis import APIS, api_by_name
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.create_delegation_token import CreateDelegationTokenRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from braidlog.wire.generated.offset_commit import OffsetCommitRequest
from braidlog.wire.generated.produce import ProduceRequest
from support.asked_broker import AskedBroker, on_broker_with
from support.authorization_matrix import ADMIN, ALICE, ANONYMOUS, World, cells, from_plain, gist
from support.authorization_probes import (
    COMMITTED,
    GROUP,
    INTER_BROKER,
    OWNER,
    PROBES,
    RULES_AND_QUOTAS,
    TOPIC,
    TXN,
    produce,
)
from support.authorized_broker import RestrictedBroker
from support.source_tree import ROOT

SETTINGS = {
    "delegation.token.secret.key": "not-a-secret",
    "auto.create.topics.enable": "true",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
}


async def prepare(restricted: RestrictedBroker) -> World:
    """What the probes are about."""
    admin = restricted.admin
    world = World(host=restricted.alice.host, topic_id=await admin.create(TOPIC))
    await admin.await_coordinator(GROUP)
    await admin.await_coordinator(TXN, 1)
    produced = await admin.ask(from_plain(ProduceRequest, produce()), 9)
    assert gist(produced) == f"[{TOPIC} [0]]"
    commit = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "topics": COMMITTED}
    assert gist(await admin.ask(from_plain(OffsetCommitRequest, commit), 8)) == f"[{TOPIC} [0]]"
    initialised = InitProducerIdRequest(transactional_id=TXN, transaction_timeout_ms=60_000)
    assert (await admin.ask(initialised, 4)).error_code == 0
    wanted = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name=OWNER, max_lifetime_ms=-1)
    token = await admin.ask(wanted, 3)
    assert token.error_code == 0, token
    world.token_id, world.hmac = token.token_id, bytes(token.hmac)
    return world


def test_every_api_has_a_probe_or_is_for_everybody() -> None:
    served = {*RETURNING, *RESPONDING, *INTER_BROKER_ROUTES}
    probed = {ApiKey(api_by_name(probe.api).key) for probe in (*PROBES, *INTER_BROKER)}
    for_everybody = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert served - probed == for_everybody


def test_the_document_names_every_api() -> None:
    text = (ROOT / "docs/AUTHORIZATION.md").read_text(encoding="utf-8")
    unnamed = [api.name for api in APIS.values() if api.key in RETURNING | RESPONDING and api.name not in text]
    assert unnamed == []


@on_broker_with(SETTINGS)
async def test_what_kafka_answers(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    users = {ALICE: restricted.alice, ADMIN: restricted.admin, ANONYMOUS: restricted.anonymous}
    world = await prepare(restricted)
    unlike: list[str] = []
    for probe in PROBES:
        if api_by_name(probe.api).key not in broker.parts.dispatch.routes:
            assert probe in RULES_AND_QUOTAS, f"{probe.api} is not served"
            continue
        for cell in cells(probe, world):
            restricted.rules(*cell.acls)
            answer = gist(await users[cell.user].ask(probe.message(world), probe.version))
            if answer != cell.expected:
                unlike.append(f"{probe.title}: {cell.situation}: {answer!r}, not {cell.expected!r}")
    assert unlike == []
