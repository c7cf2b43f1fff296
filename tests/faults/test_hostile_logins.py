"""Very many who do not log in, or do not end their TLS handshake, while others are served."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import braidlog
from braidlog.client.admin.topics import NewTopic
from support.broker import BRAIDLOG
from support.eventually import eventually
from support.guarded_broker import PASSWORD, USER, GuardedBroker, start_guarded
from support.hostile import TOPICS, HostileFrames, Sender, seed_of_the_day, served
from support.hostile_logins import HostileLogins, LoginSender, plain_login
from support.numbered import NumberedWriter
from support.soak import scaled

MB = 1 << 20
MOST_GROWTH = 100 * MB
AT_A_TIME = 2000
A_BUG = "a bug"
PARTITIONS = {"honest": 2}


def honest_login(broker: GuardedBroker) -> dict[str, str]:
    return {
        **broker.trust,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


def peak_rss(broker: GuardedBroker) -> int:
    for line in Path(f"/proc/{broker.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return broker.process.rss_bytes()


def besiege(place: Path, exchanges: int, seed: int) -> str:
    """The whole story; returns a line that sums it up."""
    with start_guarded(BRAIDLOG, place) as broker:
        with braidlog.Admin(bootstrap_servers=broker.at("PLAINTEXT")) as admin:
            admin.create_topics([NewTopic(topic, count) for topic, count in PARTITIONS.items()]).raise_for_errors()
        login = honest_login(broker)
        of_librdkafka = {**login, "ssl.ca.location": login["ssl.truststore.location"]}
        del of_librdkafka["ssl.truststore.location"]
        writer = NumberedWriter(broker.at("SASLTLS"), PARTITIONS, **of_librdkafka)
        sender = LoginSender(broker.ports["SASL"], broker.ports["SASLTLS"], HostileLogins(seed))
        with writer.running():
            # What the first connections of each kind cost once does not count.
            sender.run(100)
            before = broker.process.rss_bytes()
            began, sent_before = time.monotonic(), sender.exchanges
            sizes: list[int] = []
            while sender.exchanges < exchanges:
                acknowledged = writer.acknowledged
                sender.run(min(AT_A_TIME, exchanges - sender.exchanges))
                # Whoever behaves is served all the while, and let in.
                with braidlog.Admin({**login, "bootstrap.servers": broker.at("SASLTLS")}) as admin:
                    assert admin.describe_cluster().cluster_id
                eventually(lambda a=acknowledged: writer.polled() and writer.acknowledged > a, 60)  # type: ignore[misc]
                sizes.append(broker.process.rss_bytes() // MB)
            took = time.monotonic() - began
        writer.flush()
        writer.check(broker.at("PLAINTEXT"))
        sender.close()
        peak, after = peak_rss(broker), broker.process.rss_bytes()
        assert peak - before < MOST_GROWTH, f"grew from {before // MB} to {peak // MB} MB"
        bugs = [line for line in broker.process.lines if A_BUG in line or line.startswith("Traceback")]
        assert not bugs, broker.process.log(200)
        return (
            f"{sender.exchanges} exchanges in {took:.0f} s ({(sender.exchanges - sent_before) / took:.0f} a second): "
            f"{dict(sender.sent)}; {sender.answered} answered, {sender.closed_by_broker} closed by the broker, "
            f"{sender.given_up} given up; {writer.acknowledged} honest records meanwhile; "
            f"memory {before // MB} MB before, {after // MB} MB after, {peak // MB} MB at most; "
            f"MB after every {AT_A_TIME}: {sizes}"
        )


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("exchanges", [600, pytest.param(100_000, marks=pytest.mark.soak)])
def test_who_does_not_log_in_disturbs_nobody(tmp_path: Path, exchanges: int) -> None:
    print(besiege(tmp_path, exchanges, seed=1))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_more_disturb_nobody(tmp_path: Path) -> None:
    for part in range(scaled(1)):
        seed = seed_of_the_day()
        (tmp_path / str(part)).mkdir()
        print(f"seed {seed}:", besiege(tmp_path / str(part), 20_000, seed))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("bursts", [400, pytest.param(5_000, marks=pytest.mark.long)])
def test_hostile_frames_after_a_login_disturb_nobody(tmp_path: Path, bursts: int) -> None:
    """A user that was let in is still a stranger's program: frames of every api, changed, right after the login."""
    with start_guarded(BRAIDLOG, tmp_path) as broker:
        with braidlog.Admin(bootstrap_servers=broker.at("PLAINTEXT")) as admin:
            counts = {**PARTITIONS, **dict.fromkeys(TOPICS, 1)}
            admin.create_topics([NewTopic(topic, count) for topic, count in counts.items()]).raise_for_errors()
        login = honest_login(broker)
        frames = HostileFrames(2, served(broker.ports["PLAINTEXT"]))
        sender = Sender(broker.ports["SASL"], frames, greeting=plain_login(USER, PASSWORD))
        writer = NumberedWriter(broker.at("PLAINTEXT"), PARTITIONS)
        with writer.running():
            sender.run(50)
            before = broker.process.rss_bytes()
            while sender.connections < bursts:
                acknowledged = writer.acknowledged
                sender.run(min(200, bursts - sender.connections))
                with braidlog.Admin({**login, "bootstrap.servers": broker.at("SASLTLS")}) as admin:
                    assert admin.describe_cluster().cluster_id
                eventually(lambda a=acknowledged: writer.polled() and writer.acknowledged > a, 60)  # type: ignore[misc]
        writer.flush()
        writer.check(broker.at("PLAINTEXT"))
        # Some bursts end with an answer to the honest question at their end: these were logged in.
        assert sender.probed > 0
        assert sender.closed_by_broker > 0
        peak = peak_rss(broker)
        assert peak - before < MOST_GROWTH, f"grew from {before // MB} to {peak // MB} MB"
        bugs = [line for line in broker.process.lines if A_BUG in line or line.startswith("Traceback")]
        assert not bugs, broker.process.log(200)
        print(
            f"{sum(sender.sent.values())} frames over {sender.connections} connections: {sender.probed} answered to "
            f"the end, {sender.closed_by_broker} closed by the broker, {sender.given_up} given up; "
            f"memory {before // MB} MB before, {peak // MB} MB at most"
        )
