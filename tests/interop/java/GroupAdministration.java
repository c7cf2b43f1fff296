import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.UnknownMemberIdException;

/** What the Java admin client sees and does of groups, and moves between the two protocols. */
final class GroupAdministration {
    private GroupAdministration() {
    }

    /** A consumer with partitions of its own choice commits without being a member. */
    static void simpleCommit(String name) throws Exception {
        Scenarios.createTopic(name, 1);
        TopicPartition place = new TopicPartition(name, 0);
        try (KafkaConsumer<String, String> consumer = Scenarios.consumer(GroupScenarios.member(name)); Admin admin = Scenarios.admin()) {
            consumer.assign(List.of(place));
            consumer.commitSync(Map.of(place, new OffsetAndMetadata(5)));
            Scenarios.same(5L, consumer.committed(Set.of(place)).get(place).offset(), "own commit");
            ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(name)).all().get().get(name);
            Scenarios.same("Empty", described.state().toString(), "state");
            Scenarios.check(admin.listConsumerGroups().all().get().stream().anyMatch(
                each -> each.groupId().equals(name) && each.isSimpleConsumerGroup()), "listed as simple");
        }
    }

    static void adminGroups(String name) throws Exception {
        Scenarios.createTopic(name, 2);
        Ownership ownership = new Ownership();
        try (Admin admin = Scenarios.admin()) {
            try (Member one = new Member("one", ownership, GroupScenarios.member(name, "group.instance.id", "first"), List.of(name))) {
                GroupScenarios.settled(ownership, 2, one);
                ConsumerGroupDescription group = admin.describeConsumerGroups(List.of(name)).all().get().get(name);
                Scenarios.same("Stable", group.state().toString(), "state");
                Scenarios.same(GroupScenarios.classic ? "range" : "uniform", group.partitionAssignor(), "assignor");
                Scenarios.same(GroupScenarios.protocol, group.type().toString().toLowerCase(), "type");
                Scenarios.same(1, group.members().size(), "members");
                String memberId = one.metadata().memberId();
                group.members().forEach(each -> {
                    Scenarios.same(one.owned(), each.assignment().topicPartitions(), "assignment");
                    Scenarios.same("one", each.clientId(), "client id");
                    Scenarios.same("/127.0.0.1", each.host(), "host");
                    Scenarios.same("first", each.groupInstanceId().orElse(""), "instance");
                    Scenarios.same(memberId, each.consumerId(), "member id");
                });
                Scenarios.fails(GroupNotEmptyException.class, () -> admin.deleteConsumerGroups(List.of(name)).all().get());
            }
            Scenarios.eventually("listed as it is", () -> admin.listConsumerGroups().all().get().stream()
                .anyMatch(each -> each.groupId().equals(name) && !each.isSimpleConsumerGroup()));
            if (GroupScenarios.classic) {
                admin.removeMembersFromConsumerGroup(
                    name, new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("first")))).all().get();
            }
            Scenarios.eventually("empty", () -> admin.describeConsumerGroups(List.of(name)).all().get()
                .get(name).state().toString().equals("Empty"));
            admin.deleteConsumerGroups(List.of(name)).all().get();
            Scenarios.fails(GroupIdNotFoundException.class, () -> admin.deleteConsumerGroups(List.of(name)).all().get());
            Scenarios.check(admin.listConsumerGroups().all().get().stream().noneMatch(each -> each.groupId().equals(name)), "gone");
        }
    }

    static void adminOffsets(String name) throws Exception {
        Scenarios.createTopic(name, 2);
        TopicPartition first = new TopicPartition(name, 0);
        TopicPartition second = new TopicPartition(name, 1);
        Ownership ownership = new Ownership();
        try (Admin admin = Scenarios.admin()) {
            admin.alterConsumerGroupOffsets(name, Map.of(
                first, new OffsetAndMetadata(11, "set"), second, new OffsetAndMetadata(12))).all().get();
            try (Member one = new Member("one", ownership, GroupScenarios.member(name), List.of(name))) {
                GroupScenarios.settled(ownership, 2, one);
                Scenarios.fails(
                    UnknownMemberIdException.class,
                    () -> admin.alterConsumerGroupOffsets(name, Map.of(first, new OffsetAndMetadata(1))).all().get());
                Scenarios.fails(
                    GroupSubscribedToTopicException.class,
                    () -> admin.deleteConsumerGroupOffsets(name, Set.of(first)).all().get());
            }
            Map<TopicPartition, OffsetAndMetadata> found = admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get();
            Scenarios.same(Set.of(first, second), found.keySet(), "partitions with offsets");
            Scenarios.same("set", found.get(first).metadata(), "metadata");
            Scenarios.eventually("no members", () -> admin.describeConsumerGroups(List.of(name)).all().get().get(name).members().isEmpty());
            admin.deleteConsumerGroupOffsets(name, Set.of(first)).all().get();
            found = admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get();
            Scenarios.same(Set.of(second), found.keySet(), "after deletion");
            admin.deleteTopics(List.of(name)).all().get();
            Scenarios.eventually("offsets go with the topic", () ->
                admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get().isEmpty());
        }
    }

    static void removeMembers(String name) throws Exception {
        Scenarios.createTopic(name, 2);
        Ownership ownership = new Ownership();
        try (Member one = new Member("one", ownership, GroupScenarios.member(name, "group.instance.id", "one"), List.of(name));
             Admin admin = Scenarios.admin()) {
            GroupScenarios.settled(ownership, 2, one);
            String before = one.metadata().memberId();
            admin.removeMembersFromConsumerGroup(name, new RemoveMembersFromConsumerGroupOptions()).all().get();
            Scenarios.eventually("it is a new member", () -> {
                if (one.failure() != null) {
                    return true;
                }
                ConsumerGroupMetadata now = one.metadata();
                return !now.memberId().isEmpty() && !now.memberId().equals(before) && one.owned().size() == 2;
            });
        }
    }

    /** A live group of the older protocol takes in members of the newer, until it is one of the newer. */
    static void upgrade(String name) throws Exception {
        Scenarios.createTopic(name, 4);
        Scenarios.fill(name, 4, 10);
        Ownership ownership = new Ownership();
        try (Admin admin = Scenarios.admin()) {
            Member old = new Member("old", ownership, GroupScenarios.of("classic", name), List.of(name));
            GroupScenarios.settled(ownership, 4, old);
            Scenarios.eventually("read", () -> old.read().size() == 40);
            CountDownLatch committed = new CountDownLatch(1);
            old.tell(consumer -> {
                consumer.commitSync();
                committed.countDown();
            });
            committed.await();
            try (Member young = new Member("young", ownership, GroupScenarios.of("consumer", name), List.of(name))) {
                GroupScenarios.settled(ownership, 4, old, young);
                Scenarios.same("Consumer", typeOf(admin, name), "type of the mixed group");
                old.close();
                GroupScenarios.settled(ownership, 4, young);
                Scenarios.same(0, young.read().size(), "the commit was taken over");
            }
        }
        Scenarios.same(Set.of(), ownership.violations(), "partitions held twice");
    }

    static void downgrade(String name) throws Exception {
        Scenarios.createTopic(name, 4);
        Ownership ownership = new Ownership();
        try (Admin admin = Scenarios.admin()) {
            Member young = new Member("young", ownership, GroupScenarios.of("consumer", name), List.of(name));
            GroupScenarios.settled(ownership, 4, young);
            try (Member old = new Member("old", ownership, GroupScenarios.of("classic", name), List.of(name))) {
                GroupScenarios.settled(ownership, 4, old, young);
                young.close();
                GroupScenarios.settled(ownership, 4, old);
                Scenarios.eventually("classic again", () -> typeOf(admin, name).equals("Classic"));
            }
        }
        Scenarios.same(Set.of(), ownership.violations(), "partitions held twice");
    }

    private static String typeOf(Admin admin, String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get().get(group).type().toString();
    }
}
