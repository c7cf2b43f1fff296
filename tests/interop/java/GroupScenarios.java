import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.OffsetMetadataTooLarge;
import org.apache.kafka.common.errors.UnreleasedInstanceIdException;

/** Groups by the Java consumer, of the protocol that the second argument names ("classic" or "consumer"). */
public final class GroupScenarios {
    static String protocol;
    static boolean classic;

    public static void main(String[] arguments) throws Exception {
        Scenarios.bootstrap = arguments[0];
        protocol = arguments[1];
        classic = protocol.equals("classic");
        Scenarios.plan("join-and-leave", GroupScenarios::joinAndLeave);
        Scenarios.plan("twelve-at-once", GroupScenarios::twelveAtOnce);
        Scenarios.plan("commits", GroupScenarios::commits);
        Scenarios.plan("auto-commit", GroupScenarios::autoCommit);
        Scenarios.plan("large-metadata", GroupScenarios::largeMetadata);
        Scenarios.plan("simple-commit", GroupAdministration::simpleCommit);
        Scenarios.plan("static-return", GroupScenarios::staticReturn);
        Scenarios.plan("static-fenced", GroupScenarios::staticFenced);
        Scenarios.plan("stalled", GroupScenarios::stalled);
        Scenarios.plan("new-partitions", GroupScenarios::newPartitions);
        Scenarios.plan("pattern", GroupScenarios::pattern);
        Scenarios.plan("two-topics", GroupScenarios::twoTopics);
        Scenarios.plan("admin-groups", GroupAdministration::adminGroups);
        Scenarios.plan("admin-offsets", GroupAdministration::adminOffsets);
        Scenarios.plan("range", GroupScenarios::range);
        if (classic) {
            Scenarios.plan("cooperative", GroupScenarios::cooperative);
            Scenarios.plan("remove-members", GroupAdministration::removeMembers);
        } else {
            Scenarios.plan("upgrade", GroupAdministration::upgrade);
            Scenarios.plan("downgrade", GroupAdministration::downgrade);
        }
        Scenarios.runAll(new HashSet<>(Arrays.asList(arguments).subList(2, arguments.length)));
    }

    static Map<String, Object> member(String group, Object... pairs) {
        return Scenarios.with(of(protocol, group), pairs);
    }

    static Map<String, Object> of(String protocol, String group) {
        Map<String, Object> settings = Scenarios.with(Map.of(), "group.id", group, "group.protocol", protocol);
        if (protocol.equals("classic")) {
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "300");
        }
        return settings;
    }

    static void settled(Ownership ownership, int partitions, Member... members) throws Exception {
        int fair = partitions / members.length;
        Scenarios.eventually(members.length + " members share " + partitions + " partitions", () -> {
            int held = 0;
            for (Member member : members) {
                if (member.failure() != null) {
                    throw new AssertionError(member.name + " failed", member.failure());
                }
                int own = member.owned().size();
                if (own < fair || own > fair + 1) {
                    return false;
                }
                held += own;
            }
            return held == partitions;
        });
        Scenarios.same(Set.of(), ownership.violations(), "partitions held twice");
    }

    private static void joinAndLeave(String name) throws Exception {
        Scenarios.createTopic(name, 6);
        Scenarios.fill(name, 6, 50);
        Ownership ownership = new Ownership();
        List<String> topics = List.of(name);
        List<String> read = new ArrayList<>();
        try (Member first = new Member("a", ownership, member(name), topics)) {
            settled(ownership, 6, first);
            Scenarios.eventually("the first reads all", () -> first.read().size() == 300);
            try (Member second = new Member("b", ownership, member(name), topics)) {
                settled(ownership, 6, first, second);
                try (Member third = new Member("c", ownership, member(name), topics)) {
                    settled(ownership, 6, first, second, third);
                    Set<String> ids = new HashSet<>();
                    for (Member each : List.of(first, second, third)) {
                        ids.add(each.metadata().memberId());
                    }
                    Scenarios.same(3, ids.size(), "member ids");
                }
                settled(ownership, 6, first, second);
            }
            settled(ownership, 6, first);
            read.addAll(first.read());
        }
        Scenarios.same(Set.of(), ownership.violations(), "partitions held twice");
        Scenarios.check(new HashSet<>(read).size() == 300, "every record is read: " + read.size());
    }

    private static void twelveAtOnce(String name) throws Exception {
        Scenarios.createTopic(name, 24);
        Ownership ownership = new Ownership();
        Member[] members = IntStream.range(0, 12)
            .mapToObj(number -> new Member("m" + number, ownership, member(name), List.of(name))).toArray(Member[]::new);
        try {
            settled(ownership, 24, members);
        } finally {
            for (Member each : members) {
                each.close();
            }
        }
    }

    private static void commits(String name) throws Exception {
        Scenarios.createTopic(name, 2);
        Scenarios.fill(name, 2, 40);
        TopicPartition first = new TopicPartition(name, 0);
        TopicPartition second = new TopicPartition(name, 1);
        try (KafkaConsumer<String, String> consumer = Scenarios.consumer(member(name))) {
            Scenarios.same(null, consumer.committed(Set.of(first)).get(first), "before any commit");
            consumer.subscribe(List.of(name));
            read(consumer, 80);
            consumer.commitSync(Map.of(first, new OffsetAndMetadata(13, "where I was — ünïcode")));
            AtomicReference<Exception> failed = new AtomicReference<>();
            CountDownLatch done = new CountDownLatch(1);
            consumer.commitAsync(Map.of(second, new OffsetAndMetadata(7, java.util.Optional.of(0), "")), (offsets, error) -> {
                failed.set(error);
                done.countDown();
            });
            Scenarios.eventually("the asynchronous commit", () -> {
                consumer.poll(Scenarios.SHORT);
                return done.getCount() == 0;
            });
            Scenarios.same(null, failed.get(), "asynchronous commit");
        }
        try (KafkaConsumer<String, String> consumer = Scenarios.consumer(member(name))) {
            Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(Set.of(first, second));
            Scenarios.same(new OffsetAndMetadata(13, "where I was — ünïcode"), committed.get(first), "first");
            Scenarios.same(new OffsetAndMetadata(7, java.util.Optional.of(0), ""), committed.get(second), "second");
            consumer.subscribe(List.of(name));
            Set<String> read = read(consumer, 27 + 33);
            Scenarios.check(read.contains("0@13") && read.contains("1@7") && !read.contains("0@12"), "resumed " + read);
            consumer.commitSync();
        }
        try (KafkaConsumer<String, String> consumer = Scenarios.consumer(member(name))) {
            Scenarios.same(40L, consumer.committed(Set.of(first)).get(first).offset(), "all of it");
        }
    }

    private static Set<String> read(KafkaConsumer<String, String> consumer, int count) throws Exception {
        Set<String> read = new HashSet<>();
        Scenarios.eventually(count + " records", () -> {
            consumer.poll(Scenarios.SHORT).forEach(record -> read.add(record.partition() + "@" + record.offset()));
            return read.size() >= count;
        });
        Scenarios.same(count, read.size(), "records read");
        return read;
    }

    private static void autoCommit(String name) throws Exception {
        Scenarios.createTopic(name, 1);
        Scenarios.fill(name, 1, 30);
        Map<String, Object> settings = member(name, "enable.auto.commit", "true", "auto.commit.interval.ms", "200");
        TopicPartition place = new TopicPartition(name, 0);
        try (KafkaConsumer<String, String> consumer = Scenarios.consumer(settings); Admin admin = Scenarios.admin()) {
            consumer.subscribe(List.of(name));
            read(consumer, 30);
            Scenarios.eventually("the periodic commit", () -> {
                consumer.poll(Scenarios.SHORT);
                OffsetAndMetadata found = admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get().get(place);
                return found != null && found.offset() == 30;
            });
        }
    }

    private static void largeMetadata(String name) throws Exception {
        Scenarios.createTopic(name, 1);
        TopicPartition place = new TopicPartition(name, 0);
        try (KafkaConsumer<String, String> consumer = Scenarios.consumer(member(name))) {
            consumer.subscribe(List.of(name));
            Scenarios.eventually("an assignment", () -> {
                consumer.poll(Scenarios.SHORT);
                return !consumer.assignment().isEmpty();
            });
            consumer.commitSync(Map.of(place, new OffsetAndMetadata(0, "x".repeat(4096))));
            Scenarios.fails(OffsetMetadataTooLarge.class, () -> {
                consumer.commitSync(Map.of(place, new OffsetAndMetadata(0, "x".repeat(4097))));
                return null;
            });
            Scenarios.same(4096, consumer.committed(Set.of(place)).get(place).metadata().length(), "kept");
        }
    }

    private static void staticReturn(String name) throws Exception {
        Scenarios.createTopic(name, 4);
        Ownership ownership = new Ownership();
        Map<String, Object> one = member(name, "group.instance.id", "one");
        Map<String, Object> two = member(name, "group.instance.id", "two");
        try (Member other = new Member("other", ownership, two, List.of(name))) {
            Set<TopicPartition> before;
            final int generation;
            try (Member gone = new Member("gone", ownership, one, List.of(name))) {
                settled(ownership, 4, gone, other);
                before = gone.owned();
                Scenarios.eventually("a generation", () -> gone.metadata().generationId() >= 0);
                generation = gone.metadata().generationId();
            }
            int revocations = ownership.revocations();
            try (Member back = new Member("back", ownership, one, List.of(name))) {
                settled(ownership, 4, back, other);
                Scenarios.same(before, back.owned(), "the same partitions");
                if (classic) {
                    Scenarios.eventually("no rebalance", () -> back.metadata().generationId() == generation);
                }
                Scenarios.same(revocations, ownership.revocations(), "nothing taken from the other");
            }
        }
    }

    private static void staticFenced(String name) throws Exception {
        Scenarios.createTopic(name, 2);
        Ownership ownership = new Ownership();
        Map<String, Object> settings = member(name, "group.instance.id", "one");
        try (Member first = new Member("first", ownership, settings, List.of(name))) {
            settled(ownership, 2, first);
            try (Member second = new Member("second", ownership, settings, List.of(name))) {
                Member loser = classic ? first : second;
                Scenarios.eventually("one of two with the same instance id fails", () -> loser.failure() != null);
                Class<? extends Throwable> expected = classic ? FencedInstanceIdException.class : UnreleasedInstanceIdException.class;
                Scenarios.check(expected.isInstance(loser.failure()), "failed with " + loser.failure());
                settled(new Ownership(), 2, classic ? second : first);
            }
        }
    }

    /** A member that does not poll loses its partitions and may not commit for them. */
    private static void stalled(String name) throws Exception {
        Scenarios.createTopic(name, 2);
        Scenarios.fill(name, 2, 10);
        Map<String, Object> impatient = member(name, "max.poll.interval.ms", "3000");
        try (KafkaConsumer<String, String> sleeper = Scenarios.consumer(impatient)) {
            sleeper.subscribe(List.of(name));
            read(sleeper, 20);
            Ownership ownership = new Ownership();
            try (Member other = new Member("other", ownership, member(name), List.of(name))) {
                settled(ownership, 2, other);
                Scenarios.fails(CommitFailedException.class, () -> {
                    sleeper.commitSync(Map.of(new TopicPartition(name, 0), new OffsetAndMetadata(10)));
                    return null;
                });
                Scenarios.eventually("the sleeper is back", () -> {
                    sleeper.poll(Scenarios.SHORT);
                    return sleeper.assignment().size() == 1 && other.owned().size() == 1;
                });
                Scenarios.eventually("the other reads what was not committed", () -> other.read().size() >= 20);
            }
        }
    }

    private static void newPartitions(String name) throws Exception {
        Scenarios.createTopic(name, 1);
        Ownership ownership = new Ownership();
        Map<String, Object> settings = member(name, "metadata.max.age.ms", "500", "allow.auto.create.topics", "false");
        try (Member first = new Member("a", ownership, settings, List.of(name, name + "-later")); Admin admin = Scenarios.admin()) {
            settled(ownership, 1, first);
            admin.createPartitions(Map.of(name, NewPartitions.increaseTo(4))).all().get();
            settled(ownership, 4, first);
            Scenarios.createTopic(name + "-later", 3);
            settled(ownership, 7, first);
            admin.deleteTopics(List.of(name + "-later")).all().get();
            settled(ownership, 4, first);
        }
    }

    private static void pattern(String name) throws Exception {
        Scenarios.createTopic(name + "-x1", 2);
        Scenarios.createTopic(name + "-y", 2);
        Ownership ownership = new Ownership();
        Map<String, Object> settings = member(name, "metadata.max.age.ms", "500");
        try (KafkaConsumer<String, String> consumer = Scenarios.consumer(settings)) {
            consumer.subscribe(Pattern.compile(Pattern.quote(name) + "-x.*"), ownership.listenerOf("a"));
            Scenarios.eventually("the topics that match", () -> {
                consumer.poll(Scenarios.SHORT);
                return consumer.assignment().size() == 2;
            });
            Scenarios.createTopic(name + "-x2", 3);
            Scenarios.eventually("a topic that came later", () -> {
                consumer.poll(Scenarios.SHORT);
                return consumer.assignment().size() == 5;
            });
            Scenarios.check(consumer.assignment().stream().noneMatch(each -> each.topic().endsWith("-y")), "only what matches");
        }
    }

    /** Members of one group with different subscriptions; and a subscription that changes. */
    private static void twoTopics(String name) throws Exception {
        Scenarios.createTopic(name + "-1", 2);
        Scenarios.createTopic(name + "-2", 2);
        Ownership ownership = new Ownership();
        try (Member one = new Member("one", ownership, member(name), List.of(name + "-1"));
             Member two = new Member("two", ownership, member(name), List.of(name + "-2"))) {
            settled(ownership, 4, one, two);
            Scenarios.check(one.owned().stream().allMatch(each -> each.topic().endsWith("-1")), "own topic only");
            one.tell(consumer -> consumer.subscribe(List.of(name + "-2"), ownership.listenerOf("one")));
            Scenarios.eventually("only the other topic is read", () ->
                one.owned().size() == 1 && two.owned().size() == 1
                    && one.owned().stream().allMatch(each -> each.topic().endsWith("-2")));
            one.tell(KafkaConsumer::unsubscribe);
            Scenarios.eventually("the unsubscribed one has nothing", () -> one.owned().isEmpty() && two.owned().size() == 2);
            one.close();
        }
        Scenarios.same(Set.of(), ownership.violations(), "partitions held twice");
    }

    private static void range(String name) throws Exception {
        Scenarios.createTopic(name + "-1", 3);
        Scenarios.createTopic(name + "-2", 3);
        Object[] assignor = classic
            ? new Object[] {"partition.assignment.strategy", RangeAssignor.class.getName()}
            : new Object[] {"group.remote.assignor", "range"};
        Ownership ownership = new Ownership();
        List<String> topics = List.of(name + "-1", name + "-2");
        try (Member one = new Member("one", ownership, member(name, assignor), topics);
             Member two = new Member("two", ownership, member(name, assignor), topics)) {
            Scenarios.eventually("the range", () -> {
                Set<Set<Integer>> shares = new HashSet<>();
                for (Member each : List.of(one, two)) {
                    Set<Integer> numbers = each.owned().stream().map(TopicPartition::partition).collect(Collectors.toSet());
                    if (each.owned().size() != 2 * numbers.size()) {
                        return false;
                    }
                    shares.add(numbers);
                }
                return shares.equals(Set.of(Set.of(0, 1), Set.of(2)));
            });
        }
    }

    private static void cooperative(String name) throws Exception {
        Scenarios.createTopic(name, 6);
        Ownership ownership = new Ownership();
        Map<String, Object> settings = member(name, "partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        try (Member first = new Member("a", ownership, settings, List.of(name))) {
            settled(ownership, 6, first);
            try (Member second = new Member("b", ownership, settings, List.of(name))) {
                settled(ownership, 6, first, second);
                Scenarios.same(3, ownership.revocations(), "only what moved was revoked");
            }
            settled(ownership, 6, first);
        }
        Scenarios.same(Set.of(), ownership.violations(), "partitions held twice");
    }
}
