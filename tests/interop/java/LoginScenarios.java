import java.io.FileReader;
import java.io.Reader;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Logs in as each of the property files says. A line for each: its path, "ok" or the class of the error, its text. */
public final class LoginScenarios {
    public static void main(String[] files) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        for (String file : files) {
            pool.submit(() -> System.out.println(String.join("\t", file, outcome(file))));
        }
        pool.shutdown();
        if (!pool.awaitTermination(4, TimeUnit.MINUTES)) {
            throw new IllegalStateException("the scenarios did not end");
        }
    }

    private static String outcome(String file) {
        try {
            Properties properties = new Properties();
            try (Reader reader = new FileReader(file)) {
                properties.load(reader);
            }
            properties.put("default.api.timeout.ms", "120000");
            properties.put("request.timeout.ms", "60000");
            properties.put("max.block.ms", "120000");
            try (Admin admin = Admin.create(properties)) {
                admin.describeCluster().nodes().get();
            }
            try (KafkaProducer<String, String> producer =
                    new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
                producer.send(new ProducerRecord<>("logins", "hello")).get();
            }
            return "ok\t";
        } catch (ExecutionException failed) {
            return told(failed.getCause());
        } catch (Exception failed) {
            return told(failed);
        }
    }

    private static String told(Throwable problem) {
        return problem.getClass().getSimpleName() + "\t" + String.valueOf(problem.getMessage()).replace('\n', ' ');
    }
}
