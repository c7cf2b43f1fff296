import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client's part of the interop tests: one line per scenario, "name PASS" or "name FAIL why". */
public final class ClientScenarios {
    private interface Scenario {
        void run(String topic) throws Exception;
    }

    private static final long BASE = System.currentTimeMillis() - 3_600_000L;
    private static String bootstrap;

    public static void main(String[] arguments) {
        bootstrap = arguments[0];
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            attempt("codec-" + codec, topic -> roundTrip(topic, Map.of("compression.type", codec)));
        }
        for (String acks : List.of("0", "1", "all")) {
            Map<String, Object> settings = Map.of("acks", acks, "enable.idempotence", "false");
            attempt("acks-" + acks, topic -> roundTrip(topic, settings));
        }
        attempt("idempotent", ClientScenarios::idempotent);
        attempt("odd-records", ClientScenarios::oddRecords);
        attempt("megabyte", ClientScenarios::megabyte);
        attempt("too-large", ClientScenarios::tooLarge);
        attempt("offsets", ClientScenarios::offsets);
        attempt("small-fetches", ClientScenarios::smallFetches);
        attempt("thousand-partitions", ClientScenarios::thousandPartitions);
        attempt("admin-topics", ClientScenarios::adminTopics);
        attempt("admin-configs", ClientScenarios::adminConfigs);
        attempt("admin-records", ClientScenarios::adminRecords);
        attempt("admin-cluster", ClientScenarios::adminCluster);
    }

    private static void attempt(String name, Scenario scenario) {
        try {
            scenario.run("java-" + name + "-" + System.nanoTime());
            System.out.println(name + " PASS");
        } catch (Throwable failure) {
            String where = Arrays.stream(failure.getStackTrace())
                .filter(frame -> frame.getClassName().startsWith("ClientScenarios")).findFirst().map(Object::toString).orElse("");
            System.out.println((name + " FAIL " + failure + " at " + where).replace('\n', ' '));
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static void same(Object expected, Object actual, String what) {
        check(Objects.equals(expected, actual), what + ": expected " + expected + " but was " + actual);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static KafkaProducer<byte[], byte[]> producer(Map<String, ?> extra) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("linger.ms", "5");
        settings.putAll(extra);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Map<String, ?> extra) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "none");
        settings.putAll(extra);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static Admin admin() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return Admin.create(settings);
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, List<ProducerRecord<byte[], byte[]>> records)
        throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (ProducerRecord<byte[], byte[]> record : records) {
            sent.add(producer.send(record));
        }
        producer.flush();
        for (Future<RecordMetadata> future : sent) {
            future.get();
        }
    }

    private static List<ProducerRecord<byte[], byte[]>> plain(String topic, int count, int size) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            byte[] value = Arrays.copyOf(bytes(number + ":"), size);
            records.add(new ProducerRecord<>(topic, 0, BASE + number, bytes("key-" + number % 7), value));
        }
        return records;
    }

    private static List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        while (records.size() < count) {
            consumer.poll(Duration.ofMillis(500)).forEach(records::add);
            check(System.nanoTime() < deadline, "only " + records.size() + " of " + count + " records came");
        }
        return records;
    }

    private static void compare(List<ProducerRecord<byte[], byte[]>> sent, List<ConsumerRecord<byte[], byte[]>> read) {
        same(sent.size(), read.size(), "count");
        for (int number = 0; number < sent.size(); number++) {
            ProducerRecord<byte[], byte[]> expected = sent.get(number);
            ConsumerRecord<byte[], byte[]> actual = read.get(number);
            check(Arrays.equals(expected.key(), actual.key()), "key of " + number);
            check(Arrays.equals(expected.value(), actual.value()), "value of " + number);
            same(expected.timestamp(), actual.timestamp(), "timestamp of " + number);
            same(expected.headers(), actual.headers(), "headers of " + number);
        }
    }

    private static List<ConsumerRecord<byte[], byte[]>> readFrom(String topic, long offset, int count, Map<String, ?> extra) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(extra)) {
            TopicPartition here = new TopicPartition(topic, 0);
            consumer.assign(List.of(here));
            consumer.seek(here, offset);
            return read(consumer, count);
        }
    }

    private static void roundTrip(String topic, Map<String, ?> settings) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = plain(topic, 500, 100);
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            send(producer, records);
        }
        compare(records, readFrom(topic, 0, 500, Map.of("isolation.level", "read_committed")));
    }

    private static void idempotent(String topic) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = plain(topic, 2000, 50);
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("batch.size", "500", "enable.idempotence", "true"))) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : records) {
                sent.add(producer.send(record));
            }
            for (int number = 0; number < sent.size(); number++) {
                same((long) number, sent.get(number).get().offset(), "offset");
            }
        }
        compare(records, readFrom(topic, 0, 2000, Map.of()));
    }

    private static void oddRecords(String topic) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        records.add(new ProducerRecord<>(topic, 0, BASE, null, bytes("no key")));
        records.add(new ProducerRecord<>(topic, 0, BASE, new byte[0], new byte[0]));
        records.add(new ProducerRecord<>(topic, 0, BASE + 9, bytes("tombstone"), (byte[]) null));
        records.add(new ProducerRecord<>(topic, 0, BASE + 1, (byte[]) null, (byte[]) null));
        ProducerRecord<byte[], byte[]> headed = new ProducerRecord<>(topic, 0, BASE, bytes("k"), bytes("headers"));
        headed.headers().add("a", bytes("1")).add("a", bytes("2")).add("empty", new byte[0]).add("null", null);
        records.add(headed);
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", "lz4"))) {
            send(producer, records);
        }
        compare(records, readFrom(topic, 0, records.size(), Map.of()));
    }

    private static void megabyte(String topic) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = plain(topic, 4, 1_000_000);
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("max.request.size", "2000000"))) {
            send(producer, records);
        }
        compare(records, readFrom(topic, 0, 4, Map.of()));
    }

    private static void tooLarge(String topic) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("max.request.size", "9000000"))) {
            Future<RecordMetadata> sent = producer.send(new ProducerRecord<>(topic, 0, null, new byte[1_100_000]));
            fails(RecordTooLargeException.class, sent);
            send(producer, plain(topic, 1, 10));
        }
    }

    private static void fails(Class<? extends Throwable> kind, Future<?> future) throws Exception {
        try {
            future.get();
        } catch (ExecutionException failure) {
            check(kind.isInstance(failure.getCause()), "expected " + kind.getSimpleName() + " but was " + failure.getCause());
            return;
        }
        throw new AssertionError("expected " + kind.getSimpleName());
    }

    private static void offsets(String topic) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("batch.size", "900"))) {
            send(producer, plain(topic, 100, 100));
        }
        TopicPartition here = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            consumer.assign(List.of(here));
            same(Map.of(here, 0L), consumer.beginningOffsets(List.of(here)), "beginning");
            same(Map.of(here, 100L), consumer.endOffsets(List.of(here)), "end");
            same(55L, consumer.offsetsForTimes(Map.of(here, BASE + 55)).get(here).offset(), "by time");
            same(null, consumer.offsetsForTimes(Map.of(here, BASE + 100)).get(here), "past the end");
            for (long offset : new long[] {63, 5, 99}) {
                consumer.seek(here, offset);
                same(offset, read(consumer, 1).get(0).offset(), "seek");
            }
            consumer.seekToBeginning(List.of(here));
            same(0L, read(consumer, 1).get(0).offset(), "seek to the beginning");
            consumer.seek(here, 12345);
            try {
                read(consumer, 1);
                throw new AssertionError("an offset out of range was served");
            } catch (OffsetOutOfRangeException expected) {
                same(Set.of(here), expected.partitions(), "out of range");
            }
        }
    }

    private static void smallFetches(String topic) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = plain(topic, 60, 1000);
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            send(producer, records);
        }
        compare(records, readFrom(topic, 0, 60, Map.of("max.partition.fetch.bytes", "10", "fetch.max.bytes", "10")));
    }

    private static void thousandPartitions(String topic) throws Exception {
        try (Admin admin = admin(); KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("auto.offset.reset", "earliest"))) {
            admin.createTopics(List.of(new NewTopic(topic, 1000, (short) 1))).all().get();
            try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
                List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
                for (int partition = 0; partition < 1000; partition++) {
                    records.add(new ProducerRecord<>(topic, partition, null, bytes("" + partition)));
                }
                send(producer, records);
            }
            List<TopicPartition> all = new ArrayList<>();
            for (int partition = 0; partition < 1000; partition++) {
                all.add(new TopicPartition(topic, partition));
            }
            consumer.assign(all);
            for (ConsumerRecord<byte[], byte[]> record : read(consumer, 1000)) {
                same("" + record.partition(), new String(record.value(), StandardCharsets.UTF_8), "value");
            }
        }
    }

    private static TopicDescription describe(Admin admin, String topic, int partitions) throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        while (true) {
            try {
                TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
                if (found.partitions().size() == partitions) {
                    return found;
                }
            } catch (ExecutionException notYet) {
                check(notYet.getCause() instanceof UnknownTopicOrPartitionException, "describe: " + notYet.getCause());
            }
            check(System.nanoTime() < deadline, topic + " never had " + partitions + " partitions");
        }
    }

    private static void adminTopics(String topic) throws Exception {
        try (Admin admin = admin()) {
            NewTopic wanted = new NewTopic(topic, Optional.of(2), Optional.empty());
            var created = admin.createTopics(List.of(wanted));
            same(2, created.numPartitions(topic).get(), "partitions");
            same(1, created.replicationFactor(topic).get(), "replication factor");
            TopicDescription described = describe(admin, topic, 2);
            same(created.topicId(topic).get(), described.topicId(), "topic id");
            same(1, described.partitions().get(0).isr().size(), "in-sync replicas");
            fails(TopicExistsException.class, admin.createTopics(List.of(wanted)).all());
            fails(InvalidTopicException.class, admin.createTopics(List.of(new NewTopic("a b", 1, (short) 1))).all());
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            describe(admin, topic, 4);
            check(admin.listTopics().names().get().contains(topic), "listed");
            admin.deleteTopics(List.of(topic)).all().get();
            fails(UnknownTopicOrPartitionException.class, admin.deleteTopics(List.of(topic)).all());
        }
    }

    private static void adminConfigs(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(Map.of("retention.ms", "777777")))).all().get();
            describe(admin, topic, 1);
            Config before = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            same("777777", before.get("retention.ms").value(), "retention.ms");
            same(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, before.get("retention.ms").source(), "source");
            same(ConfigEntry.ConfigType.LONG, before.get("retention.ms").type(), "type");
            check(before.get("cleanup.policy").isDefault(), "default");
            Collection<AlterConfigOp> change = List.of(
                new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE),
                new AlterConfigOp(new ConfigEntry("max.message.bytes", "54321"), AlterConfigOp.OpType.SET));
            admin.incrementalAlterConfigs(Map.of(resource, change)).all().get();
            long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
            Config after;
            do {
                check(System.nanoTime() < deadline, "the change never came");
                after = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            } while (!after.get("max.message.bytes").value().equals("54321"));
            check(after.get("retention.ms").isDefault(), "deleted");
            Collection<AlterConfigOp> wrong = List.of(
                new AlterConfigOp(new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET));
            fails(InvalidConfigurationException.class, admin.incrementalAlterConfigs(Map.of(resource, wrong)).all());
        }
    }

    private static void adminRecords(String topic) throws Exception {
        TopicPartition here = new TopicPartition(topic, 0);
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            send(producer, plain(topic, 20, 10));
        }
        try (Admin admin = admin()) {
            var deleted = admin.deleteRecords(Map.of(here, RecordsToDelete.beforeOffset(8)));
            same(8L, deleted.lowWatermarks().get(here).get().lowWatermark(), "low watermark");
            same(8L, admin.listOffsets(Map.of(here, OffsetSpec.earliest())).partitionResult(here).get().offset(), "earliest");
            same(20L, admin.listOffsets(Map.of(here, OffsetSpec.latest())).partitionResult(here).get().offset(), "latest");
            var newest = admin.listOffsets(Map.of(here, OffsetSpec.maxTimestamp())).partitionResult(here).get();
            same(19L, newest.offset(), "max timestamp's offset");
            same(BASE + 19, newest.timestamp(), "max timestamp");
        }
        same(8L, readFrom(topic, 8, 1, Map.of()).get(0).offset(), "first record");
    }

    private static void adminCluster(String topic) throws Exception {
        try (Admin admin = admin()) {
            var cluster = admin.describeCluster();
            same(1, cluster.nodes().get().size(), "nodes");
            same(bootstrap, cluster.nodes().get().iterator().next().host() + ":" + cluster.nodes().get().iterator().next().port(), "node");
            check(cluster.clusterId().get().length() == 22, "cluster id");
            var node = cluster.nodes().get().iterator().next().id();
            var dirs = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
            same(1, dirs.size(), "log dirs");
            check(dirs.values().iterator().next().error() == null, "log dir error");
            admin.listPartitionReassignments().reassignments().get();
            same(Collections.emptyMap(), admin.listPartitionReassignments().reassignments().get(), "reassignments");
        }
    }
}
