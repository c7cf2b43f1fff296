"""Settings of kafka-python, aiokafka, confluent-kafka (librdkafka) that we have by another name, or do another way.

Kept for who brings a program along: the refusal of an unknown setting says what to write instead. `{…}` is a setting
of ours, shown in the spelling in which theirs was given.
"""

from __future__ import annotations

from typing import Final

_METRICS: Final = "call metrics() for the numbers of a client"
_LOGGING: Final = "the library logs through Python's logging, to the logger braidlog.client"
_POLL: Final = "poll(timeout) returns an empty list after that time"

INSTEAD: Final = {
    # Security
    "sasl.mechanisms": "use {sasl.mechanism}",
    "sasl.plain.username": "use {sasl.username}",
    "sasl.plain.password": "use {sasl.password}",
    "oauth.cb": "give the function as {sasl.oauth.token.provider}",
    "sasl.oauthbearer.method": "give {sasl.oauthbearer.token.endpoint.url}, or {sasl.oauth.token.provider}",
    "ssl.ca.location": "use {ssl.truststore.location}; a PEM file will do",
    "ssl.cafile": "use {ssl.truststore.location}; a PEM file will do",
    "ssl.ca.pem": "use {ssl.truststore.certificates}",
    "ssl.cadata": "use {ssl.truststore.certificates}",
    "ssl.certificate.location": "use {ssl.keystore.location}: one PEM file with the key and the certificates",
    "ssl.certfile": "use {ssl.keystore.location}: one PEM file with the key and the certificates",
    "ssl.key.location": "use {ssl.keystore.location}: one PEM file with the key and the certificates",
    "ssl.keyfile": "use {ssl.keystore.location}: one PEM file with the key and the certificates",
    "ssl.certificate.pem": "use {ssl.keystore.certificate.chain}",
    "ssl.key.pem": "use {ssl.keystore.key}",
    "ssl.password": "use {ssl.key.password}",
    "ssl.check.hostname": "an empty {ssl.endpoint.identification.algorithm} leaves the host's name unchecked",
    "enable.ssl.certificate.verification": "certificates are always verified; name those to trust with "
    "{ssl.truststore.location}",
    "ssl.context": "say what the context would with {ssl.truststore.location} and {ssl.keystore.location}",
    "ssl.ciphers": "use {ssl.cipher.suites}",
    # Producer
    "message.timeout.ms": "use {delivery.timeout.ms}",
    "message.max.bytes": "use {max.request.size}",
    "max.batch.size": "use {batch.size}",
    "queue.buffering.max.kbytes": "use {buffer.memory}, in bytes",
    "compression.level": "use {compression.gzip.level}, {compression.lz4.level} or {compression.zstd.level}",
    "partitioner": "use {partitioner.class}",
    "on.delivery": "give it to send(…, on_delivery=)",
    "delivery.report.only.error": "give on_delivery to send(); it is called with the error, or None",
    "dr.cb": "give on_delivery to send()",
    "dr.msg.cb": "give on_delivery to send()",
    # Consumer
    "consumer.timeout.ms": f"{_POLL}; `for record in consumer` waits for ever",
    "enable.partition.eof": "there are no records that stand for an end; compare position() with end_offsets()",
    "enable.auto.offset.store": "set {enable.auto.commit} to false and commit() the offsets that are done",
    "queued.min.messages": "{fetch.max.bytes} bounds what is fetched ahead",
    "queued.max.messages.kbytes": "{fetch.max.bytes} bounds what is fetched ahead",
    "on.commit": "give a callback to commit_async()",
    "topics": "call subscribe([…]) on the consumer",
    "topic": "call subscribe([…]) on the consumer",
    "legacy.iterator": "leave it out: poll() and iteration may be mixed",
    # All
    "config": "give the mapping as the first argument, without a name",
    "conf": "give the mapping as the first argument, without a name",
    "configs": "give the mapping as the first argument, without a name",
    "bootstrap.server": "use {bootstrap.servers}",
    "brokers": "use {bootstrap.servers}",
    "hosts": "use {bootstrap.servers}",
    "socket.timeout.ms": "use {request.timeout.ms}",
    "topic.metadata.refresh.interval.ms": "use {metadata.max.age.ms}",
    "socket.send.buffer.bytes": "use {send.buffer.bytes}",
    "socket.receive.buffer.bytes": "use {receive.buffer.bytes}",
    "socket.keepalive.enable": "leave it out: keepalive is on",
    "api.version": "leave it out: versions are agreed on with each broker",
    "api.version.auto.timeout.ms": "leave it out: versions are agreed on with each broker",
    "api.version.request": "leave it out: versions are agreed on with each broker",
    "broker.version.fallback": "leave it out: versions are agreed on with each broker",
    "loop": "leave it out: each client has a thread of its own, and is awaited from any loop",
    "error.cb": f"leave it out: calls raise, and {_LOGGING}",
    "log.cb": _LOGGING,
    "logger": _LOGGING,
    "log.level": _LOGGING,
    "debug": f"{_LOGGING}; set its level to DEBUG",
    "stats.cb": _METRICS,
    "statistics.interval.ms": _METRICS,
    "throttle.cb": _METRICS,
    "default.topic.config": "give its settings with the others",
}
