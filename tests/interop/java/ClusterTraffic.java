import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Writes and reads a topic until its standard input ends, whatever happens to the cluster: `bootstrap topic partitions`. */
public final class ClusterTraffic {
    private static final Set<String> ACKNOWLEDGED = ConcurrentHashMap.newKeySet();
    private static final Set<String> READ = ConcurrentHashMap.newKeySet();
    private static final Queue<String> FAILURES = new ConcurrentLinkedQueue<>();
    private static volatile boolean writingEnds = false;
    private static volatile boolean readingEnds = false;

    public static void main(String[] arguments) throws Exception {
        Scenarios.bootstrap = arguments[0];
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        Thread writer = new Thread(() -> write(topic, partitions), "writer");
        Thread reader = new Thread(() -> read(topic), "reader");
        writer.start();
        reader.start();
        Scenarios.eventually("first records", () -> READ.size() > partitions);
        System.out.println("under way");
        while (System.in.read() >= 0) {
            // Whoever started this closes the pipe when the faults are over.
        }
        writingEnds = true;
        writer.join();
        Scenarios.eventually("everything read", () -> !FAILURES.isEmpty() || READ.containsAll(ACKNOWLEDGED));
        readingEnds = true;
        reader.join();
        Set<String> missing = new TreeSet<>(ACKNOWLEDGED);
        missing.removeAll(READ);
        for (String failure : FAILURES) {
            System.out.println("failure " + failure);
        }
        System.out.println("acknowledged " + ACKNOWLEDGED.size() + " failed " + FAILURES.size() + " missing " + missing.size());
    }

    private static void write(String topic, int partitions) {
        Map<String, String> settings = Map.of("delivery.timeout.ms", "180000", "max.block.ms", "180000", "acks", "all");
        try (KafkaProducer<String, String> producer = Scenarios.producer(settings)) {
            for (int number = 0; !writingEnds; number++) {
                for (int partition = 0; partition < partitions; partition++) {
                    String value = partition + " " + number;
                    producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, problem) -> {
                        if (problem == null) {
                            ACKNOWLEDGED.add(value);
                        } else {
                            FAILURES.add(problem.toString());
                        }
                    });
                }
                Thread.sleep(50);
            }
            producer.flush();
        } catch (Exception problem) {
            FAILURES.add("writer: " + problem);
        }
    }

    private static void read(String topic) {
        try (KafkaConsumer<String, String> consumer = Scenarios.consumer(Map.of("group.id", topic, "enable.auto.commit", "true"))) {
            consumer.subscribe(List.of(topic));
            while (!readingEnds) {
                for (ConsumerRecord<String, String> record : consumer.poll(Scenarios.SHORT)) {
                    READ.add(record.value());
                }
            }
        } catch (Exception problem) {
            FAILURES.add("reader: " + problem);
        }
    }
}
