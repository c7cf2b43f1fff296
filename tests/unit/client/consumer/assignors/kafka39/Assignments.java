import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.common.*;

/** Reads groups as `make_golden.py` writes them and answers what kafka-clients assigns. */
public class Assignments {
    private static final List<PartitionInfo> PARTITIONS = new ArrayList<>();
    private static final Map<String, Node> NODES = new TreeMap<>();
    private static final Map<String, Subscription> MEMBERS = new LinkedHashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split(" ", -1);
            switch (words[0]) {
                case "topic" -> topic(words);
                case "member" -> member(words);
                case "assign" -> assign(words[1]);
                case "userdata" -> userData(words[1], Integer.parseInt(words[2]), words[3]);
            }
        }
    }

    private static Node node(String rack) {
        return NODES.computeIfAbsent(rack, name -> new Node(NODES.size(), "host", 9092, name.equals("-") ? null : name));
    }

    private static void topic(String[] words) {
        String[] racks = words[3].split(";");
        for (int index = 0; index < Integer.parseInt(words[2]); index++) {
            String[] here = racks[index % racks.length].split("\\+");
            Node[] replicas = Arrays.stream(here).map(Assignments::node).toArray(Node[]::new);
            PARTITIONS.add(new PartitionInfo(words[1], index, replicas[0], replicas, replicas));
        }
    }

    private static void member(String[] words) {
        List<String> topics = words[4].isEmpty() ? List.of() : List.of(words[4].split(","));
        Optional<String> rack = words[3].equals("-") ? Optional.empty() : Optional.of(words[3]);
        Subscription subscription = new Subscription(topics, null, List.of(), -1, rack);
        if (!words[2].equals("-")) subscription.setGroupInstanceId(Optional.of(words[2]));
        MEMBERS.put(words[1], subscription);
    }

    private static void assign(String name) {
        ConsumerPartitionAssignor assignor = name.equals("range") ? new RangeAssignor() : new RoundRobinAssignor();
        Cluster cluster = new Cluster("cluster", NODES.values(), PARTITIONS, Set.of(), Set.of());
        Map<String, Assignment> shares = assignor.assign(cluster, new GroupSubscription(MEMBERS)).groupAssignment();
        StringJoiner told = new StringJoiner(" ");
        for (String member : MEMBERS.keySet()) {
            TreeSet<String> mine = new TreeSet<>();
            for (TopicPartition each : shares.get(member).partitions()) mine.add(each.topic() + ":" + each.partition());
            told.add(member + "=" + String.join(",", mine));
        }
        System.out.println(told);
        PARTITIONS.clear();
        NODES.clear();
        MEMBERS.clear();
    }

    private static void userData(String name, int generation, String partitions) {
        ConsumerPartitionAssignor assignor = name.equals("sticky") ? new StickyAssignor() : new CooperativeStickyAssignor();
        List<TopicPartition> mine = new ArrayList<>();
        for (String each : partitions.split(",")) {
            String[] parts = each.split(":");
            mine.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
        }
        assignor.onAssignment(new Assignment(mine), new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
        ByteBuffer written = assignor.subscriptionUserData(Set.of("t"));
        System.out.println(HexFormat.of().formatHex(written.array()));
    }
}
