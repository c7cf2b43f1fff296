import java.util.Arrays;
import java.util.HashSet;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.errors.InvalidRegularExpression;

/** Subscriptions that the broker matches, which the Java consumer knows since 4.0. */
public final class RegexScenarios {
    public static void main(String[] arguments) throws Exception {
        Scenarios.bootstrap = arguments[0];
        Scenarios.plan("regex", RegexScenarios::regex);
        Scenarios.plan("bad-regex", RegexScenarios::badRegex);
        Scenarios.runAll(new HashSet<>(Arrays.asList(arguments).subList(1, arguments.length)));
    }

    private static Map<String, Object> member(String group) {
        return Map.of("group.id", group, "group.protocol", "consumer");
    }

    private static void regex(String name) throws Exception {
        Scenarios.createTopic(name + "-a1", 2);
        Scenarios.createTopic(name + "-b1", 2);
        try (KafkaConsumer<String, String> consumer = Scenarios.consumer(member(name))) {
            consumer.subscribe(new SubscriptionPattern(name + "-(a|c)[0-9]"));
            settles(consumer, 2);
            Scenarios.createTopic(name + "-c7", 3);
            settles(consumer, 5);
            Scenarios.check(consumer.assignment().stream().noneMatch(each -> each.topic().contains("-b1")), "only what matches");
            consumer.subscribe(new SubscriptionPattern(name + "-b.*"));
            settles(consumer, 2);
            Scenarios.check(consumer.assignment().stream().allMatch(each -> each.topic().contains("-b1")), "the new pattern");
        }
    }

    private static void settles(KafkaConsumer<String, String> consumer, int partitions) throws Exception {
        Scenarios.eventually(partitions + " partitions", () -> {
            consumer.poll(Scenarios.SHORT);
            return consumer.assignment().size() == partitions;
        });
    }

    private static void badRegex(String name) {
        try (KafkaConsumer<String, String> consumer = Scenarios.consumer(member(name))) {
            consumer.subscribe(new SubscriptionPattern(name + "-(a"));
            Scenarios.fails(InvalidRegularExpression.class, () -> {
                settles(consumer, 1);
                return null;
            });
        }
    }
}
