import java.util.Map;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** The same as tests/support/example_policies.py, for Kafka. */
public final class ExamplePolicies {
    public static final class Create implements CreateTopicPolicy {
        @Override
        public void validate(RequestMetadata request) {
            decide(request.topic());
            if ("1".equals(request.configs().get("retention.ms"))) {
                throw new PolicyViolationException(request.topic() + " would lose its records: raise retention.ms");
            }
        }

        @Override
        public void configure(Map<String, ?> configs) {}

        @Override
        public void close() {}
    }

    public static final class Alter implements AlterConfigPolicy {
        @Override
        public void validate(RequestMetadata request) {
            String retention = request.configs().get("retention.ms");
            if ("1".equals(retention)) {
                throw new PolicyViolationException(
                    request.resource().name() + " would lose its records: raise retention.ms");
            }
            if ("3".equals(request.configs().get("message.max.bytes"))) {
                throw new PolicyViolationException("three bytes are too few");
            }
        }

        @Override
        public void configure(Map<String, ?> configs) {}

        @Override
        public void close() {}
    }

    private static void decide(String name) {
        if (name.startsWith("refused")) {
            throw new PolicyViolationException(name + " is refused: call it otherwise");
        }
        if (name.startsWith("config")) {
            throw new InvalidConfigurationException("another error of the protocol");
        }
        if (name.startsWith("broken")) {
            throw new RuntimeException("a secret of the policy");
        }
    }
}
