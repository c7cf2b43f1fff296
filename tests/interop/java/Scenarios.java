import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What every program of scenarios needs: clients with our defaults, checks, and one line of outcome a scenario. */
final class Scenarios {
    interface Scenario {
        void run(String name) throws Exception;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static final Duration SHORT = Duration.ofMillis(100);
    static final Duration PATIENCE = Duration.ofSeconds(60);
    static String bootstrap;
    private static final Map<String, Scenario> PLANNED = new LinkedHashMap<>();

    private Scenarios() {
    }

    static void plan(String name, Scenario scenario) {
        PLANNED.put(name, scenario);
    }

    /** Runs what was planned, a few at a time: most of them wait for timeouts. Says "name PASS" or "name FAIL why". */
    static void runAll(Set<String> wanted) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        for (Map.Entry<String, Scenario> planned : PLANNED.entrySet()) {
            if (wanted.isEmpty() || wanted.contains(planned.getKey())) {
                pool.submit(() -> attempt(planned.getKey(), planned.getValue()));
            }
        }
        pool.shutdown();
        check(pool.awaitTermination(10, TimeUnit.MINUTES), "the scenarios did not end");
    }

    private static void attempt(String name, Scenario scenario) {
        String outcome;
        try {
            scenario.run("java-" + name + "-" + System.nanoTime());
            outcome = name + " PASS";
        } catch (Throwable failure) {
            String where = Arrays.stream(failure.getStackTrace()).filter(frame -> frame.getClassName().contains("Scenarios"))
                .limit(4).map(frame -> frame.getMethodName() + ":" + frame.getLineNumber()).reduce("", (a, b) -> a + " " + b);
            outcome = (name + " FAIL " + failure + " cause " + failure.getCause() + " at" + where).replace('\n', ' ');
        }
        synchronized (System.out) {
            System.out.println(outcome);
        }
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static void same(Object expected, Object actual, String what) {
        check(Objects.equals(expected, actual), what + ": expected " + expected + " but was " + actual);
    }

    static void eventually(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.holds()) {
            check(System.nanoTime() < deadline, "never came true: " + what);
            Thread.sleep(20);
        }
    }

    /** The failure that the action must end with, unwrapped from what a future puts around it. */
    static <T extends Throwable> T fails(Class<T> expected, Callable<?> action) {
        Throwable thrown;
        try {
            action.call();
            thrown = null;
        } catch (ExecutionException wrapped) {
            thrown = wrapped.getCause();
        } catch (Throwable failure) {
            thrown = failure;
        }
        for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
            if (expected.isInstance(cause)) {
                return expected.cast(cause);
            }
        }
        throw new AssertionError("expected " + expected.getSimpleName() + " but was " + thrown, thrown);
    }

    static KafkaProducer<String, String> producer(Map<String, ?> extra) {
        Map<String, Object> settings = new HashMap<>(extra);
        settings.putIfAbsent("bootstrap.servers", bootstrap);
        settings.putIfAbsent("linger.ms", "5");
        settings.putIfAbsent("max.block.ms", "30000");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Map<String, ?> extra) {
        Map<String, Object> settings = new HashMap<>(extra);
        settings.putIfAbsent("bootstrap.servers", bootstrap);
        settings.putIfAbsent("auto.offset.reset", "earliest");
        settings.putIfAbsent("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    static void createTopic(String name, int partitions) throws Exception {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
            eventually("metadata of " + name, () -> {
                try {
                    return admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size() == partitions;
                } catch (ExecutionException notYet) {
                    return false;
                }
            });
        }
    }

    /** Writes `count` records "0", "1", … to every partition. */
    static void fill(String topic, int partitions, int count) throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                for (int partition = 0; partition < partitions; partition++) {
                    sent.add(producer.send(new ProducerRecord<>(topic, partition, "k", Integer.toString(number))));
                }
            }
            for (Future<RecordMetadata> each : sent) {
                each.get();
            }
        }
    }

    /** The values of a partition up to its end, as a reader of this isolation finds them. */
    static List<String> values(String topic, int partition, String isolation) {
        try (KafkaConsumer<String, String> reader = consumer(Map.of("isolation.level", isolation))) {
            TopicPartition place = new TopicPartition(topic, partition);
            reader.assign(List.of(place));
            reader.seekToBeginning(List.of(place));
            long end = reader.endOffsets(List.of(place)).get(place);
            List<String> read = new ArrayList<>();
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (reader.position(place) < end) {
                check(System.nanoTime() < deadline, "stuck at " + reader.position(place) + " of " + end);
                for (ConsumerRecord<String, String> record : reader.poll(SHORT)) {
                    read.add(record.value());
                }
            }
            return read;
        }
    }

    /** What was committed, once no transaction is open: markers are written a moment after a commit is answered. */
    static List<String> committed(String topic, int partition) throws Exception {
        TopicPartition place = new TopicPartition(topic, partition);
        try (KafkaConsumer<String, String> any = consumer(Map.of());
             KafkaConsumer<String, String> stable = consumer(Map.of("isolation.level", "read_committed"))) {
            eventually("no open transaction in " + place, () ->
                stable.endOffsets(List.of(place)).equals(any.endOffsets(List.of(place))));
        }
        return values(topic, partition, "read_committed");
    }

    static Map<String, Object> with(Map<String, ?> settings, Object... pairs) {
        Map<String, Object> all = new HashMap<>(settings);
        for (int place = 0; place < pairs.length; place += 2) {
            all.put((String) pairs[place], pairs[place + 1]);
        }
        return all;
    }
}
