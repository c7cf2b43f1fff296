import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Reads, transforms and writes exactly once until it is killed: `bootstrap input output group protocol`. */
public final class TransformLoop {
    public static void main(String[] arguments) {
        Scenarios.bootstrap = arguments[0];
        String input = arguments[1];
        String output = arguments[2];
        Map<String, Object> settings = new HashMap<>(Map.of(
            "group.id", arguments[3], "group.protocol", arguments[4], "isolation.level", "read_committed", "max.poll.records", "20"));
        if (arguments[4].equals("classic")) {
            settings.put("session.timeout.ms", "6000");
            settings.put("group.instance.id", "loop");
        }
        KafkaConsumer<String, String> consumer = Scenarios.consumer(settings);
        KafkaProducer<String, String> producer = Scenarios.producer(
            Map.of("transactional.id", arguments[3], "max.block.ms", "120000"));
        producer.initTransactions();
        consumer.subscribe(List.of(input));
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(Scenarios.SHORT);
            if (records.isEmpty()) {
                System.out.println("idle");
                continue;
            }
            Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
            producer.beginTransaction();
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(output, record.partition(), record.key(), "out " + record.value()));
                next.put(new TopicPartition(input, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            try {
                producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
                producer.commitTransaction();
                System.out.println("done " + records.count());
            } catch (CommitFailedException moved) {
                producer.abortTransaction();
                Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
                consumer.assignment().forEach(place ->
                    consumer.seek(place, committed.get(place) == null ? 0 : committed.get(place).offset()));
            }
        }
    }
}
