import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.BaseRecords;
import org.apache.kafka.common.record.MemoryRecords;

/**
 * Prints messages as kafka-clients writes them, for the codec's tests.
 *
 * Arguments are class names; for every version of each one: the default message, then some filled from a seed.
 * A line is: name, version, bytes in hex, and the fields that the version has as JSON (ids and bytes in hex, a
 * tagged struct at its default as null), with tabs between.
 */
public final class Dump {
    private static final int FILLED = 5;
    private static final String[] LETTERS = {"a", "b", "Z", "7", "-", ".", "_", "é", "日", "😀"};

    private final short version;
    private final Random random;

    private Dump(short version, Random random) {
        this.version = version;
        this.random = random;
    }

    public static void main(String[] classNames) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String className : classNames) {
            Class<?> type = Class.forName(className);
            String name = type.getSimpleName().replaceAll("Data$", "");
            Message sample = (Message) fresh(type);
            for (short v = sample.lowestSupportedVersion(); v <= sample.highestSupportedVersion(); v++) {
                for (int round = 0; round <= FILLED; round++) {
                    Dump dump = new Dump(v, new Random(31L * (31L * name.hashCode() + v) + round));
                    Message message = (Message) fresh(type);
                    if (round > 0) {
                        dump.fill(message);
                    }
                    ByteBuffer bytes = MessageUtil.toByteBuffer(message, v);
                    out.append(name).append('\t').append(v).append('\t').append(hex(bytes)).append('\t');
                    dump.show(message, out);
                    out.append('\n');
                }
            }
        }
        System.out.write(out.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }

    private static Object fresh(Class<?> type) throws Exception {
        return type.getDeclaredConstructor().newInstance();
    }

    /** The fields that this version of a struct has, by name, tagged ones included. */
    private Map<String, Type> fieldsOf(Class<?> type, Map<String, Type> tagged) throws Exception {
        Schema schema = ((Schema[]) type.getField("SCHEMAS").get(null))[version];
        Map<String, Type> found = new HashMap<>();
        for (BoundField bound : schema.fields()) {
            if (bound.def.type instanceof TaggedFields) {
                Field inner = TaggedFields.class.getDeclaredField("fields");
                inner.setAccessible(true);
                for (Object field : ((Map<?, ?>) inner.get(bound.def.type)).values()) {
                    org.apache.kafka.common.protocol.types.Field known =
                        (org.apache.kafka.common.protocol.types.Field) field;
                    found.put(known.name, known.type);
                    tagged.put(known.name, known.type);
                }
            } else {
                found.put(bound.def.name, bound.def.type);
            }
        }
        return found;
    }

    private static List<Field> declared(Class<?> type) {
        List<Field> fields = new ArrayList<>();
        for (Field field : type.getDeclaredFields()) {
            boolean ours = !Modifier.isStatic(field.getModifiers())
                && !field.getName().equals("_unknownTaggedFields")
                && !field.getName().equals("next") && !field.getName().equals("prev");
            if (ours) {
                field.setAccessible(true);
                fields.add(field);
            }
        }
        return fields;
    }

    private static String snake(String name) {
        return name.replace("KRaft", "Kraft")
            .replaceAll("(.)([A-Z][a-z]+)", "$1_$2")
            .replaceAll("([a-z0-9])([A-Z])", "$1_$2")
            .toLowerCase();
    }

    private void fill(Object target) throws Exception {
        Map<String, Type> present = fieldsOf(target.getClass(), new HashMap<>());
        int matched = 0;
        for (Field field : declared(target.getClass())) {
            Type type = present.get(snake(field.getName()));
            if (type == null) {
                continue;
            }
            matched++;
            if (random.nextInt(8) == 0) {
                continue;
            }
            boolean nullable = type.isNullable() || field.get(target) == null;
            field.set(target, nullable && random.nextInt(5) == 0 ? null : value(field, type));
        }
        if (matched != present.size()) {
            throw new IllegalStateException(target.getClass() + " has fields that were not found: " + present);
        }
    }

    private Object value(Field field, Type type) throws Exception {
        Class<?> held = field.getType();
        if (!Collection.class.isAssignableFrom(held)) {
            return single(held, type);
        }
        if (held == List.class) {
            Class<?> element = (Class<?>) ((ParameterizedType) field.getGenericType()).getActualTypeArguments()[0];
            return elements(new ArrayList<>(), element);
        }
        ParameterizedType parent = (ParameterizedType) held.getGenericSuperclass();
        return elements((Collection<?>) fresh(held), (Class<?>) parent.getActualTypeArguments()[0]);
    }

    @SuppressWarnings("unchecked")
    private Collection<?> elements(Collection<?> collection, Class<?> element) throws Exception {
        boolean small = element.getEnclosingClass() == null;
        int count = small && random.nextInt(30) == 0 ? 130 : random.nextInt(3);
        for (int i = 0; i < count; i++) {
            ((Collection<Object>) collection).add(single(element, null));
        }
        return collection;
    }

    private Object single(Class<?> held, Type type) throws Exception {
        if (held == boolean.class) {
            return random.nextBoolean();
        } else if (held == byte.class || held == Byte.class) {
            return (byte) random.nextInt();
        } else if (held == short.class || held == Short.class) {
            return (short) random.nextInt();
        } else if (held == int.class || held == Integer.class) {
            return type == Type.UINT16 ? random.nextInt(65536) : random.nextInt();
        } else if (held == long.class || held == Long.class) {
            return random.nextLong();
        } else if (held == double.class) {
            return random.nextDouble() * 1000 - 500;
        } else if (held == String.class) {
            return text();
        } else if (held == Uuid.class) {
            return new Uuid(random.nextLong(), random.nextLong());
        } else if (held == byte[].class) {
            return bytes();
        } else if (held == ByteBuffer.class) {
            return ByteBuffer.wrap(bytes());
        } else if (held == BaseRecords.class) {
            return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes()));
        }
        Object struct = fresh(held);
        fill(struct);
        return struct;
    }

    private String text() {
        int length = random.nextInt(40) == 0 ? 150 : random.nextInt(7);
        StringBuilder letters = new StringBuilder();
        for (int i = 0; i < length; i++) {
            letters.append(LETTERS[random.nextInt(random.nextInt(4) == 0 ? LETTERS.length : 7)]);
        }
        return letters.toString();
    }

    private byte[] bytes() {
        byte[] content = new byte[random.nextInt(30) == 0 ? 200 : random.nextInt(12)];
        random.nextBytes(content);
        return content;
    }

    private static String hex(ByteBuffer buffer) {
        byte[] content = new byte[buffer.remaining()];
        buffer.duplicate().get(content);
        return HexFormat.of().formatHex(content);
    }

    private void show(Object struct, StringBuilder out) throws Exception {
        Map<String, Type> tagged = new HashMap<>();
        Map<String, Type> present = fieldsOf(struct.getClass(), tagged);
        String separator = "{";
        for (Field field : declared(struct.getClass())) {
            String name = snake(field.getName());
            if (!present.containsKey(name)) {
                continue;
            }
            out.append(separator).append('"').append(name).append("\":");
            separator = ",";
            Object held = field.get(struct);
            boolean unset = held instanceof Message && tagged.containsKey(name)
                && held.equals(fresh(held.getClass()));
            showValue(unset ? null : held, out);
        }
        out.append(separator.equals("{") ? "{}" : "}");
    }

    private void showValue(Object held, StringBuilder out) throws Exception {
        if (held == null || held instanceof Number || held instanceof Boolean) {
            out.append(held);
        } else if (held instanceof String) {
            out.append('"').append(held).append('"');
        } else if (held instanceof Uuid) {
            Uuid id = (Uuid) held;
            ByteBuffer both = ByteBuffer.allocate(16);
            both.putLong(id.getMostSignificantBits()).putLong(id.getLeastSignificantBits()).flip();
            out.append('"').append(hex(both)).append('"');
        } else if (held instanceof byte[]) {
            out.append('"').append(HexFormat.of().formatHex((byte[]) held)).append('"');
        } else if (held instanceof ByteBuffer) {
            out.append('"').append(hex((ByteBuffer) held)).append('"');
        } else if (held instanceof MemoryRecords) {
            out.append('"').append(hex(((MemoryRecords) held).buffer())).append('"');
        } else if (held instanceof Collection) {
            String separator = "[";
            for (Object element : (Collection<?>) held) {
                out.append(separator);
                separator = ",";
                showValue(element, out);
            }
            out.append(separator.equals("[") ? "[]" : "]");
        } else {
            show(held, out);
        }
    }
}
