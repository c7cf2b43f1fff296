"""The connection to ZooKeeper, which a cluster uses and a lone broker with its embedded store does not."""

from __future__ import annotations

from typing import Final

from braidlog.config.rules import at_least
from braidlog.config.setting import BOOLEAN, HIGH, INT, LIST, LOW, MEDIUM, PASSWORD, STRING, Setting

JAVA: Final = "belongs to ZooKeeper's Java client"
MIGRATION: Final = "there is no migration to KRaft"
FORM: Final = "what is in the file tells its form"
REVOCATION: Final = "revocation of certificates is not checked"
REVOKED: Final = "a certificate of ZooKeeper's that was revoked would be trusted"
MIGRATING: Final = "the cluster would stay on ZooKeeper"

SETTINGS: Final = (
    Setting("zookeeper.connect", STRING, None, HIGH,
        doc="ZooKeeper servers as host:port, comma separated, with an optional path under which the "
        "cluster lives; where not set the broker is alone, on an embedded store.",
    ),
    Setting("zookeeper.session.timeout.ms", INT, 18000, HIGH,
        doc="After this long without contact ZooKeeper takes the broker for dead.",
    ),
    Setting("zookeeper.connection.timeout.ms", INT, None, HIGH,
        doc="How long the first connection to ZooKeeper may take; the session timeout where not set.",
    ),
    Setting("zookeeper.set.acl", BOOLEAN, False, HIGH,
        doc="Protect the cluster's nodes in ZooKeeper with ACLs.",
    ),
    Setting("zookeeper.max.in.flight.requests", INT, 10, HIGH, rule=at_least(1),
        doc="Requests to ZooKeeper that may wait for an answer.",
    ),
    Setting("zookeeper.ssl.client.enable", BOOLEAN, False, MEDIUM,
        doc="Connect to ZooKeeper over TLS.",
    ),
    Setting("zookeeper.clientCnxnSocket", STRING, None, MEDIUM, no_effect=JAVA,
        doc="Socket class of the ZooKeeper client.",
    ),
    Setting("zookeeper.ssl.keystore.location", STRING, None, MEDIUM,
        doc="File with the key and certificate shown to ZooKeeper.",
    ),
    Setting("zookeeper.ssl.keystore.password", PASSWORD, None, MEDIUM,
        doc="Password of that key store.",
    ),
    Setting("zookeeper.ssl.keystore.type", STRING, None, MEDIUM, no_effect=FORM,
        doc="Format of that key store.",
    ),
    Setting("zookeeper.ssl.truststore.location", STRING, None, MEDIUM,
        doc="File with the certificates trusted for ZooKeeper.",
    ),
    Setting("zookeeper.ssl.truststore.password", PASSWORD, None, MEDIUM,
        doc="Password of that trust store.",
    ),
    Setting("zookeeper.ssl.truststore.type", STRING, None, MEDIUM, no_effect=FORM,
        doc="Format of that trust store.",
    ),
    Setting("zookeeper.ssl.protocol", STRING, "TLSv1.2", LOW,
        doc="Preferred TLS version towards ZooKeeper.",
    ),
    Setting("zookeeper.ssl.enabled.protocols", LIST, None, LOW,
        doc="TLS versions accepted towards ZooKeeper.",
    ),
    Setting("zookeeper.ssl.cipher.suites", LIST, None, LOW,
        doc="Cipher suites accepted towards ZooKeeper.",
    ),
    Setting("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", LOW,
        doc="Whether ZooKeeper's host name is checked; empty switches it off.",
    ),
    Setting("zookeeper.ssl.crl.enable", BOOLEAN, False, LOW, no_effect=REVOCATION, protects=REVOKED,
        doc="Check certificate revocation lists towards ZooKeeper.",
    ),
    Setting("zookeeper.ssl.ocsp.enable", BOOLEAN, False, LOW, no_effect=REVOCATION, protects=REVOKED,
        doc="Check certificates online (OCSP) towards ZooKeeper.",
    ),
    Setting("zookeeper.metadata.migration.enable", BOOLEAN, False, HIGH, no_effect=MIGRATION, protects=MIGRATING,
        doc="Move the cluster's metadata from ZooKeeper to KRaft.",
    ),
    Setting("zookeeper.metadata.migration.min.batch.size", INT, 200, MEDIUM, rule=at_least(1),
        internal=True, no_effect=MIGRATION,
        doc="Records of the migration written at a time.",
    ),
)
