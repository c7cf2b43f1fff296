"""Settings of Kafka's clients that have no effect here: known, so that a program that sets one learns why."""

from __future__ import annotations

from typing import Final

from braidlog.config.rules import at_least, between, one_of
from braidlog.config.setting import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    SHORT,
    STRING,
    Setting,
)

_METRICS: Final = "`metrics()` has the numbers of a client; there are no reporters"
_KERBEROS: Final = "Kerberos (GSSAPI) is not supported"
_BROKERS: Final = "tokens are verified by brokers"
_JAVA: Final = "names a part of Java; TLS is this machine's OpenSSL"
_TOKENS: Final = "a token is fetched when a connection needs one, and again with each connection that fails"
_HANDLERS: Final = "names a Java class; give a function as sasl.oauth.token.provider, or sasl.username"

SETTINGS: Final = (
    Setting("auto.include.jmx.reporter", BOOLEAN, True, LOW, doc="Whether metrics show in JMX.", no_effect=_METRICS),
    Setting("metric.reporters", LIST, "", LOW, doc="Classes that metrics are handed to.", no_effect=_METRICS),
    Setting("metrics.num.samples", INT, 2, LOW, rule=at_least(1), doc="Samples behind a metric.", no_effect=_METRICS),
    Setting("metrics.recording.level", STRING, "INFO", LOW, rule=one_of("INFO", "DEBUG", "TRACE"),
        doc="How many metrics are kept.", no_effect=_METRICS,
    ),
    Setting("metrics.sample.window.ms", LONG, 30_000, LOW, rule=at_least(0), doc="The time of one sample.",
        no_effect=_METRICS,
    ),
    Setting("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", LOW, doc="The program kinit.", no_effect=_KERBEROS),
    Setting("sasl.kerberos.min.time.before.relogin", LONG, 60_000, LOW, doc="The pause between logins.",
        no_effect=_KERBEROS,
    ),
    Setting("sasl.kerberos.service.name", STRING, None, MEDIUM, doc="The brokers' principal.", no_effect=_KERBEROS),
    Setting("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, LOW, doc="The spread of renewals.",
        no_effect=_KERBEROS,
    ),
    Setting("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, LOW,
        doc="The share of a ticket's life after which it is renewed.", no_effect=_KERBEROS,
    ),
    Setting("sasl.client.callback.handler.class", CLASS, None, MEDIUM, doc="Answers a mechanism's questions.",
        no_effect=_HANDLERS,
    ),
    Setting("sasl.login.callback.handler.class", CLASS, None, MEDIUM, doc="Fetches credentials.", no_effect=_HANDLERS),
    Setting("sasl.login.class", CLASS, None, MEDIUM, doc="Logs in.", no_effect=_HANDLERS),
    Setting("sasl.login.refresh.buffer.seconds", SHORT, 300, LOW, rule=between(0, 3_600),
        doc="The rest of a token's life to keep when it is renewed.", no_effect=_TOKENS,
    ),
    Setting("sasl.login.refresh.min.period.seconds", SHORT, 60, LOW, rule=between(0, 900),
        doc="The least time between renewals.", no_effect=_TOKENS,
    ),
    Setting("sasl.login.refresh.window.jitter", DOUBLE, 0.05, LOW, rule=between(0.0, 0.25),
        doc="The spread of renewals.", no_effect=_TOKENS,
    ),
    Setting("sasl.login.retry.backoff.ms", LONG, 100, LOW, doc="The pause before a token is asked for again.",
        no_effect="reconnect.backoff.ms is that pause",
    ),
    Setting("sasl.login.retry.backoff.max.ms", LONG, 10_000, LOW, doc="The longest such pause.",
        no_effect="reconnect.backoff.max.ms is that pause",
    ),
    Setting("sasl.oauthbearer.clock.skew.seconds", INT, 30, LOW, doc="How far clocks may differ.", no_effect=_BROKERS),
    Setting("sasl.oauthbearer.expected.audience", LIST, None, LOW, doc="Whom a token is for.", no_effect=_BROKERS),
    Setting("sasl.oauthbearer.expected.issuer", STRING, None, LOW, doc="Who issues tokens.", no_effect=_BROKERS),
    Setting("sasl.oauthbearer.jwks.endpoint.url", STRING, None, MEDIUM, doc="Where the issuer's keys are.",
        no_effect=_BROKERS,
    ),
    Setting("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, LOW, doc="How long keys are kept.",
        no_effect=_BROKERS,
    ),
    Setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, LOW,
        doc="The pause before keys are asked for again.", no_effect=_BROKERS,
    ),
    Setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000, LOW, doc="The longest such pause.",
        no_effect=_BROKERS,
    ),
    Setting("sasl.oauthbearer.scope.claim.name", STRING, "scope", LOW, doc="The claim that holds the scope.",
        no_effect=_BROKERS,
    ),
    Setting("sasl.oauthbearer.sub.claim.name", STRING, "sub", LOW, doc="The claim that holds the name.",
        no_effect=_BROKERS,
    ),
    Setting("security.providers", STRING, None, LOW, doc="Java's providers of security.", no_effect=_JAVA),
    Setting("ssl.engine.factory.class", CLASS, None, LOW, doc="Makes TLS engines.", no_effect=_JAVA),
    Setting("ssl.keymanager.algorithm", STRING, "SunX509", LOW, doc="How a key is chosen.", no_effect=_JAVA),
    Setting("ssl.provider", STRING, None, MEDIUM, doc="Java's provider of TLS.", no_effect=_JAVA),
    Setting("ssl.secure.random.implementation", STRING, None, LOW, doc="Where random numbers come from.",
        no_effect=_JAVA,
    ),
    Setting("ssl.trustmanager.algorithm", STRING, "PKIX", LOW, doc="How trust is decided.", no_effect=_JAVA),
)  # fmt: skip
