"""KRaft, Kafka's own quorum of controllers: known by name so that a server.properties of that kind loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braidlog.config.log_settings import MAX_LONG
from braidlog.config.rules import ADDRESSES, VOTERS, Value, at_least, each_of
from braidlog.config.setting import BOOLEAN, HIGH, INT, LIST, LONG, LOW, MEDIUM, STRING, Setting

if TYPE_CHECKING:
    from braidlog.config.broker import BrokerSettings

KRAFT: Final = "there is no KRaft quorum; the coordination store holds the metadata"
ALONE: Final = "the broker runs alone, outside of any cluster"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


def _both_roles(roles: Value, settings: BrokerSettings) -> bool:
    """A node that is only one of the two has others beside it."""
    return isinstance(roles, tuple) and {"broker", "controller"} <= set(roles)


def _this_node_alone(voters: Value, settings: BrokerSettings) -> bool:
    return isinstance(voters, tuple) and {voter.partition("@")[0] for voter in voters} == {str(settings.broker_id)}


def _own_controller_listener(servers: Value, settings: BrokerSettings) -> bool:
    """A quorum of one is found through its own listener."""
    names = {name.strip().upper() for name in settings.get_str("controller.listener.names").split(",")}
    own: set[str] = set()
    for listener in settings.get_str("listeners").split(","):
        name, _, address = listener.strip().partition("://")
        if name.upper() in names:
            own |= {address, *(f"{host}:{address.rpartition(':')[2]}" for host in _LOOPBACK)}
    return isinstance(servers, tuple) and set(servers) <= own


SETTINGS: Final = (
    Setting("process.roles", LIST, "", HIGH, rule=each_of("broker", "controller"), no_effect=KRAFT,
        protects=ALONE, harmless=_both_roles,
        doc="Roles of a KRaft server: `broker`, `controller` or both; braidlog is always both.",
    ),
    Setting("node.id", INT, -1, HIGH,
        doc="Number of this node; the same as broker.id.",
    ),
    Setting("controller.listener.names", STRING, None, HIGH,
        doc="Listeners of the KRaft controller; braidlog does not open them.",
    ),
    Setting("controller.quorum.voters", LIST, "", HIGH, rule=VOTERS, no_effect=KRAFT,
        protects=ALONE, harmless=_this_node_alone,
        doc="Controllers of the quorum as id@host:port.",
    ),
    Setting("controller.quorum.bootstrap.servers", LIST, "", HIGH, rule=ADDRESSES, no_effect=KRAFT, protects=ALONE,
        harmless=_own_controller_listener,
        doc="Controllers through which the quorum is found.",
    ),
    Setting("controller.quorum.election.timeout.ms", INT, 1000, HIGH, no_effect=KRAFT,
        doc="How long a controller waits for a leader before it starts an election.",
    ),
    Setting("controller.quorum.fetch.timeout.ms", INT, 2000, HIGH, no_effect=KRAFT,
        doc="How long a controller goes without an answer of the leader before an election.",
    ),
    Setting("controller.quorum.election.backoff.max.ms", INT, 1000, HIGH, no_effect=KRAFT,
        doc="Longest pause between two elections.",
    ),
    Setting("controller.quorum.append.linger.ms", INT, 25, MEDIUM, no_effect=KRAFT,
        doc="How long the leader collects metadata records before it writes them.",
    ),
    Setting("controller.quorum.request.timeout.ms", INT, 2000, MEDIUM, no_effect=KRAFT,
        doc="How long a request within the quorum may take.",
    ),
    Setting("controller.quorum.retry.backoff.ms", INT, 20, LOW, no_effect=KRAFT,
        doc="Pause before a request within the quorum is repeated.",
    ),
    Setting("sasl.mechanism.controller.protocol", STRING, "GSSAPI", HIGH, no_effect=KRAFT,
        doc="SASL mechanism towards the controllers.",
    ),
    Setting("metadata.log.dir", STRING, None, HIGH, no_effect=KRAFT,
        doc="Where the metadata log lives; the first data directory where not set.",
    ),
    Setting("metadata.log.segment.bytes", INT, 1_073_741_824, HIGH, rule=at_least(12), no_effect=KRAFT,
        doc="Segment size of the metadata log.",
    ),
    Setting("metadata.log.segment.min.bytes", INT, 8_388_608, HIGH, rule=at_least(12), internal=True,
        no_effect=KRAFT,
        doc="Smallest segment size of the metadata log.",
    ),
    Setting("metadata.log.segment.ms", LONG, 604_800_000, HIGH, no_effect=KRAFT,
        doc="Segment age of the metadata log.",
    ),
    Setting("metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, HIGH, rule=at_least(1),
        no_effect=KRAFT,
        doc="Bytes of metadata records after which a snapshot is taken.",
    ),
    Setting("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, HIGH, rule=at_least(0),
        no_effect=KRAFT,
        doc="Longest time between two snapshots of the metadata.",
    ),
    Setting("metadata.max.retention.bytes", LONG, 104_857_600, HIGH, no_effect=KRAFT,
        doc="Bytes of metadata log and snapshots that are kept.",
    ),
    Setting("metadata.max.retention.ms", LONG, 604_800_000, HIGH, no_effect=KRAFT,
        doc="How long old metadata log and snapshots are kept.",
    ),
    Setting("metadata.max.idle.interval.ms", INT, 500, LOW, rule=at_least(0), no_effect=KRAFT,
        doc="How often an idle controller writes a record that says nothing.",
    ),
    Setting("initial.broker.registration.timeout.ms", INT, 60000, MEDIUM, no_effect=KRAFT,
        doc="How long a starting broker tries to register before it gives up.",
    ),
    Setting("broker.heartbeat.interval.ms", INT, 2000, MEDIUM, no_effect=KRAFT,
        doc="How often a broker tells the controller that it lives.",
    ),
    Setting("broker.session.timeout.ms", INT, 9000, MEDIUM, no_effect=KRAFT,
        doc="After this long without a heartbeat the controller takes a broker for dead.",
    ),
    Setting("server.max.startup.time.ms", LONG, MAX_LONG, MEDIUM, rule=at_least(0), internal=True,
        no_effect=KRAFT,
        doc="Longest time a start may take.",
    ),
    Setting("eligible.leader.replicas.enable", BOOLEAN, False, HIGH, no_effect=KRAFT,
        doc="Remember replicas that left the in-sync set but are known to have all the data.",
    ),
)
