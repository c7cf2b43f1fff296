import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.common.TopicPartition;

/** Who holds which partition, told by the members' own listeners; two holders at once are a violation. */
final class Ownership {
    private final Map<TopicPartition, String> owners = new HashMap<>();
    private final Set<String> violations = new HashSet<>();
    private int revocations;

    ConsumerRebalanceListener listenerOf(String member) {
        return new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                take(member, partitions);
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                give(member, partitions, true);
            }

            @Override
            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                give(member, partitions, false);
            }
        };
    }

    private synchronized void take(String member, Collection<TopicPartition> partitions) {
        for (TopicPartition partition : partitions) {
            String before = owners.put(partition, member);
            if (before != null && !before.equals(member)) {
                violations.add(partition + " of " + before + " given to " + member);
            }
        }
    }

    private synchronized void give(String member, Collection<TopicPartition> partitions, boolean asked) {
        for (TopicPartition partition : partitions) {
            owners.remove(partition, member);
            revocations += asked ? 1 : 0;
        }
    }

    /** The member is gone without a word to its listener. */
    synchronized void forget(String member) {
        owners.values().removeIf(member::equals);
    }

    synchronized Set<TopicPartition> of(String member) {
        Set<TopicPartition> held = new HashSet<>();
        owners.forEach((partition, owner) -> {
            if (owner.equals(member)) {
                held.add(partition);
            }
        });
        return held;
    }

    synchronized int revocations() {
        return revocations;
    }

    synchronized Set<String> violations() {
        return new HashSet<>(violations);
    }
}
