"""The keyword settings of each client, for type checkers and editors; see docs/CLIENT_SETTINGS.md.

Written from the tables in `client.definitions` by `python -m tools.settings_doc`; do not edit. A time may be given
without its unit, in seconds: `linger=0.005` is `linger_ms=5`. None stands for the default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypedDict


class SerializeMethod(Protocol):
    """An object that turns keys or values into bytes."""

    def serialize(self, topic: str, value: Any, /) -> bytes | None: ...


class DeserializeMethod(Protocol):
    """An object that turns bytes into keys or values."""

    def deserialize(self, topic: str, data: bytes, /) -> Any: ...


# A name ("json", "str", "int64", …), a function, or an object with the method, or its class.
Serializer: TypeAlias = "str | Callable[[Any], bytes | None] | SerializeMethod | type[SerializeMethod]"
Deserializer: TypeAlias = "str | Callable[[bytes], Any] | DeserializeMethod | type[DeserializeMethod]"


class ClientSettings(TypedDict, total=False):
    """What every client has."""

    auto_include_jmx_reporter: bool | None
    bootstrap_servers: str | Sequence[str] | None
    client_dns_lookup: Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"] | None
    client_id: str | None
    client_rack: str | None
    connections_max_idle_ms: int | None
    connections_max_idle: float | None
    default_api_timeout_ms: int | None
    default_api_timeout: float | None
    enable_metrics_push: bool | None
    metadata_max_age_ms: int | None
    metadata_max_age: float | None
    metadata_recovery_strategy: Literal["none", "rebootstrap", "NONE", "REBOOTSTRAP"] | None
    metric_reporters: str | Sequence[str] | None
    metrics_num_samples: int | None
    metrics_recording_level: Literal["INFO", "DEBUG", "TRACE"] | None
    metrics_sample_window_ms: int | None
    receive_buffer_bytes: int | None
    reconnect_backoff_max_ms: int | None
    reconnect_backoff_max: float | None
    reconnect_backoff_ms: int | None
    reconnect_backoff: float | None
    request_timeout_ms: int | None
    request_timeout: float | None
    retry_backoff_max_ms: int | None
    retry_backoff_max: float | None
    retry_backoff_ms: int | None
    retry_backoff: float | None
    sasl_client_callback_handler_class: object | None
    sasl_jaas_config: str | None
    sasl_kerberos_kinit_cmd: str | None
    sasl_kerberos_min_time_before_relogin: int | None
    sasl_kerberos_service_name: str | None
    sasl_kerberos_ticket_renew_jitter: float | None
    sasl_kerberos_ticket_renew_window_factor: float | None
    sasl_login_callback_handler_class: object | None
    sasl_login_class: object | None
    sasl_login_connect_timeout_ms: int | None
    sasl_login_connect_timeout: float | None
    sasl_login_read_timeout_ms: int | None
    sasl_login_read_timeout: float | None
    sasl_login_refresh_buffer_seconds: int | None
    sasl_login_refresh_min_period_seconds: int | None
    sasl_login_refresh_window_factor: float | None
    sasl_login_refresh_window_jitter: float | None
    sasl_login_retry_backoff_max_ms: int | None
    sasl_login_retry_backoff_ms: int | None
    sasl_mechanism: str | None
    sasl_oauth_token_provider: Callable[[], Any] | None
    sasl_oauthbearer_clock_skew_seconds: int | None
    sasl_oauthbearer_expected_audience: str | Sequence[str] | None
    sasl_oauthbearer_expected_issuer: str | None
    sasl_oauthbearer_header_urlencode: bool | None
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int | None
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int | None
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int | None
    sasl_oauthbearer_jwks_endpoint_url: str | None
    sasl_oauthbearer_scope_claim_name: str | None
    sasl_oauthbearer_sub_claim_name: str | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_password: str | None
    sasl_username: str | None
    security_protocol: Literal[
        "PLAINTEXT",
        "SSL",
        "SASL_PLAINTEXT",
        "SASL_SSL",
        "plaintext",
        "ssl",
        "sasl_plaintext",
        "sasl_ssl",
    ] | None
    security_providers: str | None
    send_buffer_bytes: int | None
    socket_connection_setup_timeout_max_ms: int | None
    socket_connection_setup_timeout_max: float | None
    socket_connection_setup_timeout_ms: int | None
    socket_connection_setup_timeout: float | None
    ssl_cipher_suites: str | Sequence[str] | None
    ssl_enabled_protocols: str | Sequence[str] | None
    ssl_endpoint_identification_algorithm: str | None
    ssl_engine_factory_class: object | None
    ssl_key_password: str | None
    ssl_keymanager_algorithm: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_type: str | None
    ssl_protocol: str | None
    ssl_provider: str | None
    ssl_secure_random_implementation: str | None
    ssl_trustmanager_algorithm: str | None
    ssl_truststore_certificates: str | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_type: str | None


class ProducerSettings(ClientSettings, total=False):
    """The keywords of `Producer`."""

    acks: Literal["all", "-1", "0", "1", -1, 0, 1] | None
    batch_size: int | None
    buffer_memory: int | None
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None
    compression_zstd_level: int | None
    delivery_timeout_ms: int | None
    delivery_timeout: float | None
    enable_idempotence: bool | None
    interceptor_classes: str | Sequence[object] | None
    key_serializer: Serializer | None
    linger_ms: int | None
    linger: float | None
    max_block_ms: int | None
    max_block: float | None
    max_in_flight_requests_per_connection: int | None
    max_request_size: int | None
    metadata_max_idle_ms: int | None
    metadata_max_idle: float | None
    partitioner_adaptive_partitioning_enable: bool | None
    partitioner_availability_timeout_ms: int | None
    partitioner_availability_timeout: float | None
    partitioner_class: object | None
    partitioner_ignore_keys: bool | None
    retries: int | None
    transaction_timeout_ms: int | None
    transaction_timeout: float | None
    transactional_id: str | None
    value_serializer: Serializer | None


class ConsumerSettings(ClientSettings, total=False):
    """The keywords of `Consumer` and `AsyncConsumer`."""

    allow_auto_create_topics: bool | None
    auto_commit_interval_ms: int | None
    auto_commit_interval: float | None
    auto_offset_reset: str | None
    check_crcs: bool | None
    enable_auto_commit: bool | None
    exclude_internal_topics: bool | None
    fetch_max_bytes: int | None
    fetch_max_wait_ms: int | None
    fetch_max_wait: float | None
    fetch_min_bytes: int | None
    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["classic", "consumer", "CLASSIC", "CONSUMER"] | None
    group_remote_assignor: str | None
    heartbeat_interval_ms: int | None
    heartbeat_interval: float | None
    interceptor_classes: str | Sequence[object] | None
    isolation_level: Literal["read_uncommitted", "read_committed", "READ_UNCOMMITTED", "READ_COMMITTED"] | None
    key_deserializer: Deserializer | None
    max_partition_fetch_bytes: int | None
    max_poll_interval_ms: int | None
    max_poll_interval: float | None
    max_poll_records: int | None
    partition_assignment_strategy: str | Sequence[object] | None
    session_timeout_ms: int | None
    session_timeout: float | None
    value_deserializer: Deserializer | None


class AdminSettings(ClientSettings, total=False):
    """The keywords of `Admin`."""

    bootstrap_controllers: str | Sequence[str] | None
    retries: int | None
