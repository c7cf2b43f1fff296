"""The name, labels and meaning of every number on the metrics page, and the Kafka MBean it stands for.

Names are Kafka's MBeans in lower case, `kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec` being
`kafka_server_brokertopicmetrics_messagesin_total`: a rate there is a counter here, since Prometheus takes rates itself.
"""

from typing import Final, NamedTuple

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"


class Metric(NamedTuple):
    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    # The MBean, empty where Kafka has none.
    mbean: str


_TOPIC: Final = ("topic",)
_PARTITION: Final = ("topic", "partition")
_REQUEST: Final = ("request",)
_LISTENER: Final = ("listener",)

_ROWS: Final = (
    # Records and bytes, by topic.
    ("kafka_server_brokertopicmetrics_messagesin_total", COUNTER, _TOPIC, "Records appended.",
     "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec"),
    ("kafka_server_brokertopicmetrics_bytesin_total", COUNTER, _TOPIC, "Bytes of records that producers sent.",
     "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec"),
    ("kafka_server_brokertopicmetrics_bytesout_total", COUNTER, _TOPIC, "Bytes of records that consumers fetched.",
     "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec"),
    ("kafka_server_brokertopicmetrics_totalproducerequests_total", COUNTER, _TOPIC, "Appends that were asked for.",
     "kafka.server:type=BrokerTopicMetrics,name=TotalProduceRequestsPerSec"),
    ("kafka_server_brokertopicmetrics_totalfetchrequests_total", COUNTER, _TOPIC, "Reads that were asked for.",
     "kafka.server:type=BrokerTopicMetrics,name=TotalFetchRequestsPerSec"),
    ("kafka_server_brokertopicmetrics_failedproducerequests_total", COUNTER, _TOPIC, "Appends that failed.",
     "kafka.server:type=BrokerTopicMetrics,name=FailedProduceRequestsPerSec"),
    ("kafka_server_brokertopicmetrics_failedfetchrequests_total", COUNTER, _TOPIC, "Reads that failed.",
     "kafka.server:type=BrokerTopicMetrics,name=FailedFetchRequestsPerSec"),
    ("kafka_server_brokertopicmetrics_producemessageconversions_total", COUNTER, _TOPIC,
     "Records converted from an old format, or recompressed, on append.",
     "kafka.server:type=BrokerTopicMetrics,name=ProduceMessageConversionsPerSec"),
    ("kafka_server_brokertopicmetrics_fetchmessageconversions_total", COUNTER, _TOPIC,
     "Records converted to an old format for an old consumer.",
     "kafka.server:type=BrokerTopicMetrics,name=FetchMessageConversionsPerSec"),
    # Requests, by API.
    ("kafka_network_requestmetrics_requests_total", COUNTER, _REQUEST, "Requests received.",
     "kafka.network:type=RequestMetrics,name=RequestsPerSec"),
    ("kafka_network_requestmetrics_errors_total", COUNTER, ("request", "error"), "Responses that carried the error.",
     "kafka.network:type=RequestMetrics,name=ErrorsPerSec"),
    ("kafka_network_requestmetrics_totaltimems", HISTOGRAM, _REQUEST,
     "Milliseconds from the last byte of a request to its response being handed to the socket.",
     "kafka.network:type=RequestMetrics,name=TotalTimeMs"),
    ("kafka_network_requestmetrics_localtimems", HISTOGRAM, _REQUEST, "Milliseconds the broker worked on a request.",
     "kafka.network:type=RequestMetrics,name=LocalTimeMs"),
    ("kafka_network_requestmetrics_remotetimems", HISTOGRAM, _REQUEST,
     "Milliseconds a request waited for replicas, for new records or for the disk.",
     "kafka.network:type=RequestMetrics,name=RemoteTimeMs"),
    ("kafka_network_requestchannel_requestqueuesize", GAUGE, (), "Requests received and not yet answered.",
     "kafka.network:type=RequestChannel,name=RequestQueueSize"),
    ("kafka_network_socketserver_networkprocessoravgidlepercent", GAUGE, (),
     "Share of time, 0 to 1, in which the event loop had nothing to do.",
     "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent"),
    ("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent", GAUGE, (),
     "Share of time, 0 to 1, in which no request was worked on; the one event loop does both.",
     "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent"),
    # Connections, by listener.
    ("kafka_server_socket_server_metrics_connection_count", GAUGE, _LISTENER, "Open connections.",
     "kafka.server:type=socket-server-metrics,attribute=connection-count"),
    ("kafka_server_socket_server_metrics_connection_creation_total", COUNTER, _LISTENER, "Connections accepted.",
     "kafka.server:type=socket-server-metrics,attribute=connection-creation-total"),
    ("kafka_server_socket_server_metrics_connection_close_total", COUNTER, _LISTENER, "Connections closed.",
     "kafka.server:type=socket-server-metrics,attribute=connection-close-total"),
    ("kafka_network_socketserver_expiredconnectionskilledcount", COUNTER, (), "Connections closed for being idle.",
     "kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount"),
    ("braidlog_connections_refused_total", COUNTER, ("reason",), "Connections closed at once, over a limit.", ""),
    ("kafka_network_socketserver_memorypoolused", GAUGE, (), "Bytes of requests that are received or worked on.",
        "kafka.network:type=SocketServer,name=MemoryPoolUsed"),
    ("kafka_network_socketserver_memorypoolavailable", GAUGE, (), "Bytes that further requests may take.",
        "kafka.network:type=SocketServer,name=MemoryPoolAvailable"),
    ("braidlog_memory_used_bytes", GAUGE, ("pool",),
        "Bytes in use of braidlog.memory.max: requests, conversions of records, unread answers.", ""),
    ("braidlog_memory_limit_bytes", GAUGE, ("pool",), "What each pool of braidlog.memory.max may use.", ""),
    ("braidlog_memory_waits_total", COUNTER, ("pool",), "How often something had to wait for memory of a pool.", ""),
    ("braidlog_unread_answers_connections_closed_total", COUNTER, (),
        "Connections closed because their unread answers took too much memory.", ""),
    ("braidlog_turns_waiting", GAUGE, (), "Connections and long requests that wait for their next turn.", ""),
    ("braidlog_malformed_requests_total", COUNTER, (), "Connections closed for a request that cannot be read.", ""),
    # Partitions of this broker.
    ("kafka_server_replicamanager_leadercount", GAUGE, (), "Partitions that this broker leads.",
     "kafka.server:type=ReplicaManager,name=LeaderCount"),
    ("kafka_server_replicamanager_partitioncount", GAUGE, (), "Partitions that this broker has a replica of.",
     "kafka.server:type=ReplicaManager,name=PartitionCount"),
    ("kafka_server_replicamanager_offlinereplicacount", GAUGE, (), "Replicas on failed data directories.",
     "kafka.server:type=ReplicaManager,name=OfflineReplicaCount"),
    ("kafka_server_replicamanager_underreplicatedpartitions", GAUGE, (),
     "Partitions led here with fewer in-sync replicas than replicas; anything but 0 needs attention.",
     "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions"),
    ("kafka_server_replicamanager_underminisrpartitioncount", GAUGE, (),
     "Partitions led here with fewer in-sync replicas than min.insync.replicas: acks=all is refused.",
     "kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount"),
    ("kafka_server_replicamanager_atminisrpartitioncount", GAUGE, (),
     "Partitions led here with exactly min.insync.replicas in sync.",
     "kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount"),
    ("kafka_server_replicamanager_partitionswithlatetransactionscount", GAUGE, (),
     "Partitions with a transaction that is open for longer than any may be: it hangs, see `transactions abort`.",
     "kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount"),
    ("kafka_server_delayedoperationpurgatory_purgatorysize", GAUGE, ("delayedoperation",),
     "Requests that wait for an event (Fetch for records, Produce for replicas) or their deadline.",
     "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize"),
    # Coordinators.
    ("kafka_coordinator_group_groupmetadatamanager_numgroups", GAUGE, ("protocol", "state"),
     "Groups that are coordinated here.", "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups"),
    ("kafka_coordinator_group_groupmetadatamanager_numoffsets", GAUGE, (), "Committed offsets of those groups.",
     "kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets"),
    ("braidlog_transactional_ids", GAUGE, ("state",), "Transactional ids that are coordinated here.", ""),
    ("braidlog_coordinator_partitions_loading", GAUGE, _TOPIC,
     "Partitions of internal topics that are being replayed: their groups and transactions have to wait.", ""),
    ("kafka_server_fetchsessioncache_numincrementalfetchsessions", GAUGE, (), "Fetch sessions remembered.",
     "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions"),
    ("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", GAUGE, (),
     "Partitions in the remembered fetch sessions.",
     "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached"),
    ("kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total", COUNTER, (),
     "Fetch sessions dropped to make room.",
     "kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec"),
    # Logs.
    ("kafka_log_log_size", GAUGE, _PARTITION, "Bytes of the log on disk.", "kafka.log:type=Log,name=Size"),
    ("kafka_log_log_numlogsegments", GAUGE, _PARTITION, "Segments of the log.",
     "kafka.log:type=Log,name=NumLogSegments"),
    ("kafka_log_log_logstartoffset", GAUGE, _PARTITION, "First offset that can be read.",
     "kafka.log:type=Log,name=LogStartOffset"),
    ("kafka_log_log_logendoffset", GAUGE, _PARTITION, "Offset that the next record will get.",
     "kafka.log:type=Log,name=LogEndOffset"),
    ("kafka_cluster_partition_laststableoffsetlag", GAUGE, _PARTITION,
     "Records held back from read_committed consumers by open transactions.",
     "kafka.cluster:type=Partition,name=LastStableOffsetLag"),
    ("kafka_log_logmanager_offlinelogdirectorycount", GAUGE, (), "Data directories that failed.",
     "kafka.log:type=LogManager,name=OfflineLogDirectoryCount"),
    ("kafka_log_logmanager_logdirectoryoffline", GAUGE, ("logdirectory",), "1 for a data directory that failed.",
     "kafka.log:type=LogManager,name=LogDirectoryOffline"),
    ("kafka_log_logflushstats_logflushtimems", HISTOGRAM, (), "Milliseconds that syncing a log to disk took.",
     "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"),
    ("kafka_log_logcleanermanager_uncleanable_partitions_count", GAUGE, ("logdirectory",),
     "Logs that compaction gave up on.", "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count"),
    # The controller.
    ("kafka_controller_kafkacontroller_activecontrollercount", GAUGE, (), "1 on the broker that is controller.",
     "kafka.controller:type=KafkaController,name=ActiveControllerCount"),
    ("kafka_controller_kafkacontroller_offlinepartitionscount", GAUGE, (), "Partitions without a leader.",
     "kafka.controller:type=KafkaController,name=OfflinePartitionsCount"),
    ("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", GAUGE, (),
     "Partitions not led by their preferred replica.",
     "kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount"),
    ("kafka_controller_kafkacontroller_globaltopiccount", GAUGE, (), "Topics of the cluster.",
     "kafka.controller:type=KafkaController,name=GlobalTopicCount"),
    ("kafka_controller_kafkacontroller_globalpartitioncount", GAUGE, (), "Partitions of the cluster.",
     "kafka.controller:type=KafkaController,name=GlobalPartitionCount"),
    # The session with ZooKeeper; not on the embedded store.
    ("kafka_server_sessionexpirelistener_zookeepersyncconnects_total", COUNTER, (),
     "Connections to ZooKeeper that were established.",
     "kafka.server:type=SessionExpireListener,name=ZooKeeperSyncConnectsPerSec"),
    ("kafka_server_sessionexpirelistener_zookeeperdisconnects_total", COUNTER, (),
     "Connections to ZooKeeper that were lost.",
     "kafka.server:type=SessionExpireListener,name=ZooKeeperDisconnectsPerSec"),
    ("kafka_server_sessionexpirelistener_zookeeperexpires_total", COUNTER, (),
     "Sessions that ZooKeeper ended because it had not heard of this broker.",
     "kafka.server:type=SessionExpireListener,name=ZooKeeperExpiresPerSec"),
    ("kafka_server_sessionexpirelistener_zookeeperauthfailures_total", COUNTER, (),
     "Connections that ZooKeeper refused for their credentials.",
     "kafka.server:type=SessionExpireListener,name=ZooKeeperAuthFailuresPerSec"),
    ("kafka_server_sessionexpirelistener_zookeepersaslauthentications_total", COUNTER, (),
     "Connections that ZooKeeper accepted for their credentials.",
     "kafka.server:type=SessionExpireListener,name=ZooKeeperSaslAuthenticationsPerSec"),
    ("kafka_server_sessionexpirelistener_sessionstate", GAUGE, ("state",),
     "1 for the state of the session, 0 for the others.",
     "kafka.server:type=SessionExpireListener,name=SessionState"),
    ("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms", HISTOGRAM, (),
     "Milliseconds from sending a request to ZooKeeper to its answer.",
     "kafka.server:type=ZooKeeperClientMetrics,name=ZooKeeperRequestLatencyMs"),
    # The process.
    ("kafka_server_kafkaserver_brokerstate", GAUGE, (), "1 starting, 2 recovering, 3 running, 6 stopping, 7 shut down.",
     "kafka.server:type=KafkaServer,name=BrokerState"),
    ("braidlog_info", GAUGE, ("version", "broker_id", "cluster_id"), "Always 1; the labels say who this is.",
     "kafka.server:type=app-info"),
    ("braidlog_event_loop_lag_seconds", GAUGE, (), "How late the last timer of the event loop fired.", ""),
    ("braidlog_event_loop_lag_max_seconds", GAUGE, (), "The latest that a timer fired in the last minute or two.", ""),
    ("process_start_time_seconds", GAUGE, (), "When the process started, in seconds since 1970.", ""),
    ("process_cpu_seconds_total", COUNTER, (), "Processor time used.", ""),
    ("process_resident_memory_bytes", GAUGE, (), "Memory in use.", ""),
    ("process_open_fds", GAUGE, (), "Open file descriptors.", ""),
    ("process_max_fds", GAUGE, (), "Most file descriptors allowed.", ""),
)  # fmt: skip

CATALOGUE: Final = {row[0]: Metric(*row) for row in _ROWS}
