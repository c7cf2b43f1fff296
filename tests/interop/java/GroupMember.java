import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** A member in a process of its own, to be killed or stopped: `bootstrap topic group [setting=value …]`. */
public final class GroupMember {
    public static void main(String[] arguments) {
        Scenarios.bootstrap = arguments[0];
        Map<String, Object> settings = new HashMap<>(Map.of("group.id", arguments[2]));
        for (int place = 3; place < arguments.length; place++) {
            String[] pair = arguments[place].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        KafkaConsumer<String, String> consumer = Scenarios.consumer(settings);
        Runtime.getRuntime().addShutdownHook(new Thread(consumer::wakeup));
        consumer.subscribe(List.of(arguments[1]), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                say("assigned", partitions);
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                say("revoked", partitions);
            }

            @Override
            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                say("lost", partitions);
            }
        });
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(Scenarios.SHORT);
            Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
            StringBuilder said = new StringBuilder();
            for (ConsumerRecord<String, String> record : records) {
                said.append("read ").append(record.partition()).append(' ').append(record.offset()).append('\n');
                next.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            System.out.print(said);
            if (!next.isEmpty()) {
                try {
                    consumer.commitSync(next);
                    next.forEach((place, offset) -> System.out.println("committed " + place.partition() + " " + offset.offset()));
                } catch (org.apache.kafka.clients.consumer.CommitFailedException refused) {
                    System.out.println("refused");
                } catch (org.apache.kafka.common.errors.RebalanceInProgressException early) {
                    // Kafka's advice: poll, then commit again; here the next commit covers it.
                    System.out.println("refused for now");
                }
            }
            System.out.flush();
        }
    }

    private static void say(String what, Collection<TopicPartition> partitions) {
        System.out.println(what + " " + partitions.stream().map(TopicPartition::partition)
            .collect(Collectors.toCollection(TreeSet::new)).stream().map(String::valueOf).collect(Collectors.joining(",")));
    }
}
