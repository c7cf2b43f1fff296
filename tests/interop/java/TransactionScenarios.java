import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;

/** Transactions by the Java producer. The groups in them are of the protocol that the second argument names. */
public final class TransactionScenarios {
    private static String protocol;

    public static void main(String[] arguments) throws Exception {
        Scenarios.bootstrap = arguments[0];
        protocol = arguments[1];
        Scenarios.plan("commit-and-abort", TransactionScenarios::commitAndAbort);
        Scenarios.plan("many-transactions", TransactionScenarios::manyTransactions);
        Scenarios.plan("last-stable-offset", TransactionScenarios::lastStableOffset);
        Scenarios.plan("empty-transaction", TransactionScenarios::emptyTransaction);
        Scenarios.plan("offsets-in-transaction", TransactionScenarios::offsetsInTransaction);
        Scenarios.plan("pending-offsets", TransactionScenarios::pendingOffsets);
        Scenarios.plan("exactly-once-loop", TransactionScenarios::exactlyOnceLoop);
        Scenarios.plan("zombie-producer", TransactionScenarios::zombieProducer);
        Scenarios.plan("zombie-member", TransactionScenarios::zombieMember);
        Scenarios.plan("takeover-aborts", TransactionScenarios::takeoverAborts);
        Scenarios.plan("timeout-aborts", TransactionScenarios::timeoutAborts);
        Scenarios.plan("timeout-too-long", TransactionScenarios::timeoutTooLong);
        Scenarios.plan("epochs", TransactionAdministration::epochs);
        Scenarios.plan("admin-describes", TransactionAdministration::adminDescribes);
        Scenarios.plan("admin-aborts", TransactionAdministration::adminAborts);
        Scenarios.plan("admin-fences", TransactionAdministration::adminFences);
        Scenarios.runAll(new HashSet<>(Arrays.asList(arguments).subList(2, arguments.length)));
    }

    static KafkaProducer<String, String> transactional(String id, Object... pairs) {
        KafkaProducer<String, String> producer = Scenarios.producer(Scenarios.with(Map.of("transactional.id", id), pairs));
        producer.initTransactions();
        return producer;
    }

    static void send(KafkaProducer<String, String> producer, String topic, int partition, String value) {
        producer.send(new ProducerRecord<>(topic, partition, "k", value));
    }

    private static void commitAndAbort(String name) throws Exception {
        Scenarios.createTopic(name, 2);
        List<String> kept = new ArrayList<>();
        List<String> all = new ArrayList<>();
        try (KafkaProducer<String, String> producer = transactional(name)) {
            for (int number = 0; number < 6; number++) {
                producer.beginTransaction();
                String value = "v" + number;
                send(producer, name, 0, value);
                send(producer, name, 1, value);
                all.add(value);
                if (number % 3 == 1) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    kept.add(value);
                }
            }
        }
        for (int partition = 0; partition < 2; partition++) {
            Scenarios.same(kept, Scenarios.committed(name, partition), "committed of " + partition);
            Scenarios.same(all, Scenarios.values(name, partition, "read_uncommitted"), "all of " + partition);
        }
    }

    /** Several producers interleave in the same partitions; about a third of the transactions is taken back. */
    private static void manyTransactions(String name) throws Exception {
        Scenarios.createTopic(name, 3);
        Map<Integer, Set<String>> kept = new HashMap<>();
        List<KafkaProducer<String, String>> producers = IntStream.range(0, 3)
            .mapToObj(number -> transactional(name + number)).collect(Collectors.toList());
        for (int round = 0; round < 12; round++) {
            for (KafkaProducer<String, String> each : producers) {
                each.beginTransaction();
            }
            for (int number = 0; number < 20; number++) {
                for (int which = 0; which < 3; which++) {
                    send(producers.get(which), name, number % 3, which + "/" + round + "/" + number);
                }
            }
            for (int which = 0; which < 3; which++) {
                if ((round + which) % 3 == 0) {
                    producers.get(which).flush();
                    producers.get(which).abortTransaction();
                    continue;
                }
                producers.get(which).commitTransaction();
                for (int number = 0; number < 20; number++) {
                    kept.computeIfAbsent(number % 3, any -> new HashSet<>()).add(which + "/" + round + "/" + number);
                }
            }
        }
        producers.forEach(KafkaProducer::close);
        for (int partition = 0; partition < 3; partition++) {
            List<String> read = Scenarios.committed(name, partition);
            Scenarios.same(kept.get(partition).size(), read.size(), "records of " + partition);
            Scenarios.same(kept.get(partition), new HashSet<>(read), "values of " + partition);
        }
    }

    private static void lastStableOffset(String name) throws Exception {
        Scenarios.createTopic(name, 1);
        TopicPartition place = new TopicPartition(name, 0);
        try (KafkaProducer<String, String> producer = transactional(name);
             KafkaConsumer<String, String> committed = Scenarios.consumer(Map.of("isolation.level", "read_committed"));
             KafkaConsumer<String, String> any = Scenarios.consumer(Map.of())) {
            Scenarios.fill(name, 1, 3);
            producer.beginTransaction();
            send(producer, name, 0, "open");
            producer.flush();
            Scenarios.fill(name, 1, 2);
            Scenarios.same(3L, committed.endOffsets(List.of(place)).get(place), "last stable offset");
            Scenarios.same(6L, any.endOffsets(List.of(place)).get(place), "end");
            Scenarios.same(3, Scenarios.values(name, 0, "read_committed").size(), "nothing behind the open transaction");
            producer.commitTransaction();
            Scenarios.eventually("a marker takes an offset", () -> committed.endOffsets(List.of(place)).get(place) == 7L);
            Scenarios.same(6, Scenarios.committed(name, 0).size(), "all");
        }
    }

    private static void emptyTransaction(String name) throws Exception {
        Scenarios.createTopic(name, 1);
        try (KafkaProducer<String, String> producer = transactional(name)) {
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
            producer.beginTransaction();
            send(producer, name, 0, "one");
            producer.commitTransaction();
        }
        Scenarios.same(List.of("one"), Scenarios.committed(name, 0), "values");
    }

    private static Map<String, Object> member(String group) {
        return Scenarios.with(Map.of(), "group.id", group, "group.protocol", protocol, "isolation.level", "read_committed");
    }

    private static List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, int count) throws Exception {
        List<ConsumerRecord<String, String>> read = new ArrayList<>();
        Scenarios.eventually(count + " records", () -> {
            consumer.poll(Scenarios.SHORT).forEach(read::add);
            return read.size() >= count;
        });
        return read;
    }

    private static void offsetsInTransaction(String name) throws Exception {
        Scenarios.createTopic(name, 1);
        Scenarios.fill(name, 1, 10);
        TopicPartition place = new TopicPartition(name, 0);
        try (KafkaProducer<String, String> producer = transactional(name);
             KafkaConsumer<String, String> consumer = Scenarios.consumer(member(name))) {
            consumer.subscribe(List.of(name));
            read(consumer, 10);
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(4, "taken back")), consumer.groupMetadata());
            producer.abortTransaction();
            Scenarios.same(null, consumer.committed(Set.of(place)).get(place), "after abort");
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(5, "kept")), consumer.groupMetadata());
            producer.commitTransaction();
            Scenarios.same(new OffsetAndMetadata(5, "kept"), consumer.committed(Set.of(place)).get(place), "after commit");
        }
    }

    /** Offsets of a transaction that is not over are awaited by those who ask for stable ones. */
    private static void pendingOffsets(String name) throws Exception {
        Scenarios.createTopic(name, 1);
        TopicPartition place = new TopicPartition(name, 0);
        try (KafkaProducer<String, String> producer = transactional(name);
             // The newer consumer of 3.9 does not ask again after UNSTABLE_OFFSET_COMMIT.
             KafkaConsumer<String, String> stable = Scenarios.consumer(Scenarios.with(member(name), "group.protocol", "classic"));
             Admin admin = Scenarios.admin()) {
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(5)), new ConsumerGroupMetadata(name));
            Scenarios.fails(TimeoutException.class, () -> stable.committed(Set.of(place), Duration.ofSeconds(2)));
            Scenarios.check(admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get().isEmpty(), "not visible");
            producer.commitTransaction();
            Scenarios.same(5L, stable.committed(Set.of(place)).get(place).offset(), "after commit");
        }
    }

    /** Read, transform, write: every third attempt is taken back and done again. */
    private static void exactlyOnceLoop(String name) throws Exception {
        Scenarios.createTopic(name, 2);
        Scenarios.createTopic(name + "-out", 2);
        Scenarios.fill(name, 2, 100);
        try (KafkaProducer<String, String> producer = transactional(name);
             KafkaConsumer<String, String> consumer = Scenarios.consumer(Scenarios.with(member(name), "max.poll.records", "15"))) {
            consumer.subscribe(List.of(name));
            int done = 0;
            int attempt = 0;
            long deadline = System.nanoTime() + Scenarios.PATIENCE.toNanos();
            while (done < 200) {
                Scenarios.check(System.nanoTime() < deadline, "only " + done);
                Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                producer.beginTransaction();
                int taken = 0;
                for (ConsumerRecord<String, String> record : consumer.poll(Scenarios.SHORT)) {
                    send(producer, name + "-out", record.partition(), "out " + record.value());
                    next.put(new TopicPartition(name, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                    taken++;
                }
                producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
                if (taken > 0 && ++attempt % 3 == 0) {
                    producer.abortTransaction();
                    Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(next.keySet());
                    for (TopicPartition place : next.keySet()) {
                        consumer.seek(place, committed.get(place) == null ? 0 : committed.get(place).offset());
                    }
                } else {
                    producer.commitTransaction();
                    done += taken;
                }
            }
        }
        List<String> expected = IntStream.range(0, 100).mapToObj(number -> "out " + number).collect(Collectors.toList());
        for (int partition = 0; partition < 2; partition++) {
            Scenarios.same(expected, Scenarios.committed(name + "-out", partition), "output of " + partition);
        }
    }

    private static void zombieProducer(String name) throws Exception {
        Scenarios.createTopic(name, 1);
        try (KafkaProducer<String, String> old = transactional(name)) {
            old.beginTransaction();
            send(old, name, 0, "first");
            old.commitTransaction();
            old.beginTransaction();
            send(old, name, 0, "never seen");
            old.flush();
            try (KafkaProducer<String, String> young = transactional(name)) {
                Scenarios.fails(ProducerFencedException.class, () -> {
                    old.commitTransaction();
                    return null;
                });
                young.beginTransaction();
                send(young, name, 0, "second");
                young.commitTransaction();
                Throwable failure = Scenarios.fails(KafkaException.class, () -> {
                    old.beginTransaction();
                    return null;
                });
                Scenarios.check(failure instanceof ProducerFencedException, "fenced for good: " + failure);
            }
        }
        Scenarios.same(List.of("first", "second"), Scenarios.committed(name, 0), "values");
    }

    /** A transaction of a member that is no longer one may not commit its offsets (KIP-447). */
    private static void zombieMember(String name) throws Exception {
        Scenarios.createTopic(name, 1);
        Scenarios.fill(name, 1, 10);
        TopicPartition place = new TopicPartition(name, 0);
        try (KafkaProducer<String, String> producer = transactional(name)) {
            ConsumerGroupMetadata gone;
            try (KafkaConsumer<String, String> consumer = Scenarios.consumer(member(name))) {
                consumer.subscribe(List.of(name));
                read(consumer, 10);
                gone = consumer.groupMetadata();
            }
            producer.beginTransaction();
            Scenarios.fails(CommitFailedException.class, () -> {
                producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(10)), gone);
                producer.commitTransaction();
                return null;
            });
            producer.abortTransaction();
            producer.beginTransaction();
            producer.commitTransaction();
        }
    }

    private static void takeoverAborts(String name) throws Exception {
        Scenarios.createTopic(name, 1);
        KafkaProducer<String, String> lost = transactional(name);
        lost.beginTransaction();
        send(lost, name, 0, "lost");
        lost.flush();
        try (KafkaProducer<String, String> next = transactional(name)) {
            Scenarios.same(List.of(), Scenarios.values(name, 0, "read_committed"), "aborted before initTransactions returned");
            next.beginTransaction();
            send(next, name, 0, "next");
            next.commitTransaction();
        }
        lost.close(Duration.ZERO);
        Scenarios.same(List.of("next"), Scenarios.committed(name, 0), "values");
        Scenarios.same(List.of("lost", "next"), Scenarios.values(name, 0, "read_uncommitted"), "all values");
    }

    private static void timeoutAborts(String name) throws Exception {
        Scenarios.createTopic(name, 1);
        TopicPartition place = new TopicPartition(name, 0);
        try (KafkaProducer<String, String> producer = transactional(name, "transaction.timeout.ms", "1000");
             KafkaConsumer<String, String> committed = Scenarios.consumer(Map.of("isolation.level", "read_committed"))) {
            producer.beginTransaction();
            send(producer, name, 0, "late");
            producer.flush();
            Scenarios.same(0L, committed.endOffsets(List.of(place)).get(place), "open");
            Scenarios.eventually("the coordinator ends it", () -> committed.endOffsets(List.of(place)).get(place) == 2L);
            Throwable failure = Scenarios.fails(KafkaException.class, () -> {
                producer.commitTransaction();
                return null;
            });
            Scenarios.check(
                failure instanceof ProducerFencedException || failure instanceof InvalidProducerEpochException
                    || failure.getCause() instanceof InvalidProducerEpochException || failure instanceof InvalidTxnStateException
                    || failure.getCause() instanceof InvalidTxnStateException,
                "refused with " + failure + " / " + failure.getCause());
        }
        Scenarios.same(List.of(), Scenarios.committed(name, 0), "values");
        try (KafkaProducer<String, String> again = transactional(name)) {
            again.beginTransaction();
            send(again, name, 0, "in time");
            again.commitTransaction();
        }
        Scenarios.same(List.of("in time"), Scenarios.committed(name, 0), "values");
    }

    private static void timeoutTooLong(String name) {
        Throwable failure = Scenarios.fails(KafkaException.class, () -> transactional(name, "transaction.timeout.ms", "900001"));
        boolean found = false;
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            found |= cause.getClass().getSimpleName().equals("InvalidTxnTimeoutException")
                || String.valueOf(cause.getMessage()).contains("transaction.max.timeout.ms");
        }
        Scenarios.check(found, "refused with " + failure + " / " + failure.getCause());
    }
}
