import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;

/** Copies a topic exactly once until it is killed or cannot go on: `bootstrap name source sink [member setting=value …]`. */
public final class CopyWorker {
    private static final int GAVE_UP = 3;
    private static final Duration ONCE = Duration.ofMillis(50);

    private final String source;
    private final String sink;
    private final KafkaConsumer<String, String> consumer;
    private final KafkaProducer<String, String> producer;

    private CopyWorker(String[] arguments) {
        Scenarios.bootstrap = arguments[0];
        source = arguments[2];
        sink = arguments[3];
        Map<String, String> quick = Map.of(
            "reconnect.backoff.ms", "10", "reconnect.backoff.max.ms", "100", "retry.backoff.ms", "20");
        // Every partition has a committed offset from the start on: whoever finds none has found a loss.
        Map<String, Object> member = Scenarios.with(quick, "isolation.level", "read_committed",
            "max.poll.records", "50", "auto.offset.reset", "none", "fetch.max.wait.ms", "50");
        for (String pair : List.of(arguments).subList(4, arguments.length)) {
            member.put(pair.split("=", 2)[0], pair.split("=", 2)[1]);
        }
        consumer = Scenarios.consumer(member);
        producer = Scenarios.producer(Scenarios.with(quick, "transactional.id", arguments[1],
            "transaction.timeout.ms", "20000", "linger.ms", "1", "max.block.ms", "40000"));
    }

    public static void main(String[] arguments) {
        try {
            new CopyWorker(arguments).run();
        } catch (InvalidOffsetException lost) {
            throw lost;
        } catch (KafkaException failure) {
            System.out.println("gives up: " + failure);
            System.out.flush();
            // Not even a goodbye to the group, as a crash would.
            Runtime.getRuntime().halt(GAVE_UP);
        }
    }

    private void run() {
        producer.initTransactions();
        consumer.subscribe(List.of(source));
        while (true) {
            // Taken before the records: were a rebalance to come between, the coordinator would refuse their offsets.
            ConsumerGroupMetadata membership = consumer.groupMetadata();
            ConsumerRecords<String, String> records = consumer.poll(ONCE);
            if (records.isEmpty()) {
                continue;
            }
            if (membership.generationId() > 0 && copied(records, membership)) {
                System.out.println("copied " + records.count());
            } else {
                rewind();
            }
        }
    }

    /** If not, nothing of them is. */
    private boolean copied(ConsumerRecords<String, String> records, ConsumerGroupMetadata membership) {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        producer.beginTransaction();
        try {
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(sink, record.partition(), record.key(), record.value()));
                ends.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            dawdle();
            producer.sendOffsetsToTransaction(ends, membership);
            dawdle();
            producer.commitTransaction();
            return true;
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException | TimeoutException over) {
            throw over;
        } catch (KafkaException failure) {
            System.out.println("aborts: " + failure);
            producer.abortTransaction();
            return false;
        }
    }

    /** With its records sent: so that a death is likely to find a transaction open. */
    private void dawdle() {
        producer.flush();
        try {
            Thread.sleep((long) (Math.random() * 20));
        } catch (InterruptedException over) {
            throw new AssertionError(over);
        }
    }

    /** Back to what the group has committed. */
    private void rewind() {
        Set<TopicPartition> owned = consumer.assignment();
        consumer.committed(owned).forEach((place, committed) -> {
            Scenarios.check(committed != null, "the group has committed nothing for " + place);
            consumer.seek(place, committed.offset());
        });
    }
}
