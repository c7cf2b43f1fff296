import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** A group's member that polls in a thread of its own; what it does between polls can be told from outside. */
final class Member implements AutoCloseable {
    final String name;
    private final Ownership ownership;
    private final KafkaConsumer<String, String> consumer;
    private final Thread thread;
    private final List<String> read = new ArrayList<>();
    private final List<Consumer<KafkaConsumer<String, String>>> errands = new ArrayList<>();
    private volatile boolean stopping;
    private volatile Throwable failure;
    private volatile ConsumerGroupMetadata metadata;

    Member(String name, Ownership ownership, Map<String, ?> settings, List<String> topics) {
        this.name = name;
        this.ownership = ownership;
        this.consumer = Scenarios.consumer(Scenarios.with(settings, "client.id", name));
        consumer.subscribe(topics, ownership.listenerOf(name));
        thread = new Thread(this::work, name);
        thread.setDaemon(true);
        thread.start();
    }

    private void work() {
        try {
            while (!stopping) {
                for (ConsumerRecord<String, String> record : consumer.poll(Scenarios.SHORT)) {
                    synchronized (this) {
                        read.add(record.topic() + "-" + record.partition() + "@" + record.offset());
                    }
                }
                metadata = consumer.groupMetadata();
                List<Consumer<KafkaConsumer<String, String>>> due;
                synchronized (this) {
                    due = new ArrayList<>(errands);
                    errands.clear();
                }
                due.forEach(errand -> errand.accept(consumer));
            }
        } catch (Throwable thrown) {
            failure = thrown;
        } finally {
            consumer.close(Duration.ofSeconds(10));
            ownership.forget(name);
        }
    }

    /** Done by the polling thread before its next poll. */
    synchronized void tell(Consumer<KafkaConsumer<String, String>> errand) {
        errands.add(errand);
    }

    Set<TopicPartition> owned() {
        return ownership.of(name);
    }

    synchronized List<String> read() {
        return new ArrayList<>(read);
    }

    /** As it was after the last poll; there is none before the first one ended. */
    ConsumerGroupMetadata metadata() throws Exception {
        Scenarios.eventually(name + " has polled", () -> metadata != null);
        return metadata;
    }

    Throwable failure() {
        return failure;
    }

    @Override
    public void close() throws Exception {
        stopping = true;
        thread.join(30_000);
        Scenarios.check(!thread.isAlive(), name + " does not end");
    }
}
