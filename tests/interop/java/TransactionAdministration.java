import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FinalizedVersionRange;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;
import org.apache.kafka.common.utils.AppInfoParser;

/** What the Java admin client sees and does of transactions. */
final class TransactionAdministration {
    private TransactionAdministration() {
    }

    /** Transaction version 2 bumps the epoch with every transaction (KIP-890); before, it stays the producer's. */
    static void epochs(String name) throws Exception {
        Scenarios.createTopic(name, 1);
        try (KafkaProducer<String, String> producer = TransactionScenarios.transactional(name); Admin admin = Scenarios.admin()) {
            FinalizedVersionRange version = admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("transaction.version");
            boolean served = version != null && version.maxVersionLevel() >= 2;
            boolean spoken = !AppInfoParser.getVersion().startsWith("3.");
            int first = describe(admin, name).producerEpoch();
            for (int number = 1; number <= 3; number++) {
                producer.beginTransaction();
                TransactionScenarios.send(producer, name, 0, "v" + number);
                if (number == 2) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
                int expected = first + (served && spoken ? number : 0);
                Scenarios.eventually("epoch " + expected + " after " + number, () -> describe(admin, name).producerEpoch() == expected);
            }
        }
        Scenarios.same(List.of("v1", "v3"), Scenarios.committed(name, 0), "values");
    }

    static void adminDescribes(String name) throws Exception {
        Scenarios.createTopic(name, 2);
        TopicPartition place = new TopicPartition(name, 1);
        try (KafkaProducer<String, String> producer = TransactionScenarios.transactional(name); Admin admin = Scenarios.admin()) {
            Scenarios.same(TransactionState.EMPTY, describe(admin, name).state(), "before the first");
            producer.beginTransaction();
            TransactionScenarios.send(producer, name, 1, "v");
            producer.flush();
            TransactionDescription open = describe(admin, name);
            Scenarios.same(TransactionState.ONGOING, open.state(), "state");
            Scenarios.same(Set.of(place), open.topicPartitions(), "partitions");
            Scenarios.same(60_000L, open.transactionTimeoutMs(), "timeout");
            Scenarios.check(open.transactionStartTimeMs().isPresent(), "start time");
            TransactionListing listed = admin.listTransactions().all().get().stream()
                .filter(each -> each.transactionalId().equals(name)).findFirst().orElseThrow();
            Scenarios.same(TransactionState.ONGOING, listed.state(), "listed");
            Scenarios.same(open.producerId(), listed.producerId(), "producer id");
            Scenarios.check(admin.listTransactions(new ListTransactionsOptions().filterStates(Set.of(TransactionState.PREPARE_ABORT)))
                .all().get().stream().noneMatch(each -> each.transactionalId().equals(name)), "filtered by state");
            Scenarios.check(admin.listTransactions(new ListTransactionsOptions().filterProducerIds(Set.of(open.producerId())))
                .all().get().stream().allMatch(each -> each.transactionalId().equals(name)), "filtered by producer");
            Scenarios.check(admin.listTransactions(new ListTransactionsOptions().filterOnDuration(3_600_000L))
                .all().get().stream().noneMatch(each -> each.transactionalId().equals(name)), "filtered by duration");
            ProducerState active = admin.describeProducers(Set.of(place)).partitionResult(place).get().activeProducers().get(0);
            Scenarios.same(open.producerId(), active.producerId(), "active producer");
            Scenarios.same(0L, active.currentTransactionStartOffset().orElse(-1), "where it began");
            producer.commitTransaction();
            Scenarios.eventually("ended", () -> describe(admin, name).state() == TransactionState.COMPLETE_COMMIT);
            Scenarios.check(admin.describeProducers(Set.of(place)).partitionResult(place).get().activeProducers()
                .get(0).currentTransactionStartOffset().isEmpty(), "no open one");
            Scenarios.fails(TransactionalIdNotFoundException.class, () -> describe(admin, name + "-unknown"));
        }
    }

    private static TransactionDescription describe(Admin admin, String id) throws Exception {
        return admin.describeTransactions(Set.of(id)).description(id).get();
    }

    static void adminAborts(String name) throws Exception {
        Scenarios.createTopic(name, 1);
        TopicPartition place = new TopicPartition(name, 0);
        try (KafkaProducer<String, String> producer = TransactionScenarios.transactional(name); Admin admin = Scenarios.admin();
             KafkaConsumer<String, String> committed = Scenarios.consumer(Map.of("isolation.level", "read_committed"))) {
            producer.beginTransaction();
            TransactionScenarios.send(producer, name, 0, "hangs");
            producer.flush();
            ProducerState state = admin.describeProducers(Set.of(place)).partitionResult(place).get().activeProducers().get(0);
            admin.abortTransaction(new AbortTransactionSpec(
                place, state.producerId(), (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0))).all().get();
            Scenarios.eventually("readers go on", () -> committed.endOffsets(List.of(place)).get(place) == 2L);
            Scenarios.same(List.of(), Scenarios.committed(name, 0), "values");
            producer.close(Duration.ZERO);
        }
    }

    static void adminFences(String name) throws Exception {
        Scenarios.createTopic(name, 1);
        try (KafkaProducer<String, String> producer = TransactionScenarios.transactional(name); Admin admin = Scenarios.admin()) {
            producer.beginTransaction();
            TransactionScenarios.send(producer, name, 0, "fenced");
            producer.flush();
            admin.fenceProducers(List.of(name)).all().get();
            Scenarios.fails(ProducerFencedException.class, () -> {
                producer.commitTransaction();
                return null;
            });
        }
        Scenarios.same(List.of(), Scenarios.committed(name, 0), "values");
    }
}
