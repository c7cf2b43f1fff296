import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecords.RecordFilter;
import org.apache.kafka.common.record.MemoryRecords.RecordFilter.BatchRetention;
import org.apache.kafka.common.record.MemoryRecords.RecordFilter.BatchRetentionResult;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Asks Apache Kafka's own classes what record bytes mean, so that tests need no Java.
 *
 *   java Records          writes the golden cases: batches of every format and codec, what the broker's validator
 *                         makes of appends, down-conversions, and what the cleaner keeps
 *   java Records read     reads lines of hex and prints the records they hold, or the error
 *
 * Lines are tab-separated: kind, name, input hex, then what the kind needs; `records` is a list of
 * offset/timestamp/key/value/headers joined by `;`, with `-` for null and sha256 for long values.
 */
public class Records {
    static final long NOW = 1_700_000_000_000L;
    static final HexFormat HEX = HexFormat.of();
    static final TopicPartition PARTITION = new TopicPartition("t", 0);

    public static void main(String[] args) throws Exception {
        if (args.length > 0) {
            read();
            return;
        }
        batches();
        appends();
        downConversions();
        filters();
    }

    // ---- describing

    static String bytes(ByteBuffer buffer) throws Exception {
        if (buffer == null) return "-";
        byte[] data = new byte[buffer.remaining()];
        buffer.duplicate().get(data);
        if (data.length <= 40) return HEX.formatHex(data);
        return "sha256:" + HEX.formatHex(MessageDigest.getInstance("SHA-256").digest(data));
    }

    static String hex(MemoryRecords records) {
        byte[] data = new byte[records.sizeInBytes()];
        records.buffer().duplicate().get(data);
        return HEX.formatHex(data);
    }

    static String describe(Iterable<? extends RecordBatch> batches) throws Exception {
        List<String> items = new ArrayList<>();
        for (RecordBatch batch : batches) {
            batch.ensureValid();
            for (Record record : batch) {
                StringBuilder headers = new StringBuilder();
                for (Header header : record.headers()) {
                    if (headers.length() > 0) headers.append(',');
                    headers.append(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8))).append('=');
                    headers.append(header.value() == null ? "-" : HEX.formatHex(header.value()));
                }
                items.add(record.offset() + "/" + record.timestamp() + "/" + bytes(record.key()) + "/"
                    + bytes(record.value()) + "/" + headers);
            }
        }
        return String.join(";", items);
    }

    static String headers(Iterable<? extends RecordBatch> batches) {
        List<String> items = new ArrayList<>();
        for (RecordBatch batch : batches) {
            items.add(batch.baseOffset() + "/" + batch.lastOffset() + "/" + batch.sizeInBytes() + "/" + batch.magic() + "/"
                + batch.maxTimestamp() + "/" + batch.producerId() + "/" + batch.producerEpoch() + "/"
                + batch.baseSequence() + "/" + batch.lastSequence() + "/" + batch.partitionLeaderEpoch() + "/"
                + batch.compressionType().id + "/" + (batch.timestampType() == TimestampType.LOG_APPEND_TIME) + "/"
                + batch.isTransactional() + "/" + batch.isControlBatch() + "/"
                + (batch.magic() >= 2 && batch.deleteHorizonMs().isPresent() ? batch.deleteHorizonMs().getAsLong() : -1)
                + "/" + batch.countOrNull());
        }
        return String.join(";", items);
    }

    static void line(String... fields) {
        System.out.println(String.join("\t", fields));
    }

    // ---- making

    static Compression codec(CompressionType type) {
        return Compression.of(type).build();
    }

    static SimpleRecord[] samples(byte magic) {
        Header[] none = new Header[0];
        Header[] some = magic < 2 ? none : new Header[] {
            new RecordHeader("h1", "v1".getBytes()), new RecordHeader("ключ", null), new RecordHeader("", new byte[0])};
        return new SimpleRecord[] {
            new SimpleRecord(NOW, "key".getBytes(), "value".getBytes(), some),
            new SimpleRecord(NOW + 5, (byte[]) null, "no key".getBytes(), none),
            new SimpleRecord(NOW + 70_000, "tombstone".getBytes(), (byte[]) null, none),
            new SimpleRecord(NOW - 100, new byte[0], new byte[0], none),
            new SimpleRecord(NOW + 1, "long".getBytes(), "0123456789".repeat(30).getBytes(), none)};
    }

    static MemoryRecords build(byte magic, CompressionType type, TimestampType timestamps, long offset, SimpleRecord... records) {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 21);
        var builder = MemoryRecords.builder(buffer, magic, codec(type), timestamps, offset, NOW + 99);
        for (SimpleRecord record : records) builder.append(record);
        return builder.build();
    }

    static List<CompressionType> codecs(byte magic) {
        List<CompressionType> types = new ArrayList<>(List.of(CompressionType.values()));
        if (magic < 2) types.remove(CompressionType.ZSTD);
        return types;
    }

    static void batch(String name, MemoryRecords records) throws Exception {
        line("batch", name, hex(records), headers(records.batches()), describe(records.batches()));
    }

    static void batches() throws Exception {
        for (byte magic = 0; magic <= 2; magic++)
            for (CompressionType type : codecs(magic)) {
                for (TimestampType timestamps : List.of(TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)) {
                    if (magic == 0 && timestamps == TimestampType.LOG_APPEND_TIME) continue;
                    batch("v" + magic + "-" + type.name + "-" + timestamps.name, build(magic, type, timestamps, 42, samples(magic)));
                }
                if (type != CompressionType.NONE) {
                    byte[] large = "braidlog ".repeat(15_000).getBytes();
                    batch("v" + magic + "-" + type.name + "-blocks", build(magic, type, TimestampType.CREATE_TIME, 7,
                        new SimpleRecord(NOW, null, large), new SimpleRecord(NOW, null, large)));
                }
            }
        batch("commit", MemoryRecords.withEndTransactionMarker(12, NOW, 3, 4000, (short) 2, new EndTransactionMarker(ControlRecordType.COMMIT, 9)));
        batch("abort", MemoryRecords.withEndTransactionMarker(12, NOW, 3, 4000, (short) 2, new EndTransactionMarker(ControlRecordType.ABORT, 9)));
        batch("transactional", MemoryRecords.withTransactionalRecords(5L, codec(CompressionType.NONE), 4000, (short) 2, 17, 6, samples((byte) 2)));
        batch("sequence-wraps", MemoryRecords.withIdempotentRecords(5L, codec(CompressionType.NONE), 4000, (short) 2, Integer.MAX_VALUE - 2, 6, samples((byte) 2)));
    }

    // ---- appending

    static void append(String name, MemoryRecords records, CompressionType target, boolean compacted, TimestampType timestamps,
                       long before, long after, AppendOrigin origin) throws Exception {
        String input = hex(records);
        CompressionType source = CompressionType.NONE;
        for (RecordBatch batch : records.batches())
            if (batch.compressionType() != CompressionType.NONE) source = batch.compressionType();
        String policy = (target == null ? -1 : target.id) + "/" + compacted + "/" + (timestamps == TimestampType.LOG_APPEND_TIME)
            + "/" + before + "/" + after + "/" + (origin == AppendOrigin.CLIENT);
        Time time = (Time) Proxy.newProxyInstance(Records.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, arguments) -> method.getName().equals("milliseconds") ? (Object) NOW : (Object) 0L);
        try {
            var result = new LogValidator(records, PARTITION, time, source, codec(target == null ? source : target), compacted,
                RecordBatch.MAGIC_VALUE_V2, timestamps, before, after, 8, origin, MetadataVersion.latestProduction())
                .validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(1000), new Unmeasured(), BufferSupplier.NO_CACHING);
            MemoryRecords stored = result.validatedRecords;
            line("append", name, input, policy, hex(stored), headers(stored.batches()), describe(stored.batches()),
                String.valueOf(result.maxTimestampMs));
        } catch (RecordValidationException refused) {
            List<String> indexes = new ArrayList<>();
            for (var error : refused.recordErrors()) indexes.add(String.valueOf(error.batchIndex));
            line("refuse", name, input, policy, refused.invalidException().getClass().getSimpleName(), String.join(",", indexes));
        } catch (RuntimeException refused) {
            line("refuse", name, input, policy, refused.getClass().getSimpleName(), "");
        }
    }

    static class Unmeasured implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() { }
        public void recordInvalidOffset() { }
        public void recordInvalidSequence() { }
        public void recordInvalidChecksums() { }
        public void recordNoKeyCompactedTopic() { }
    }

    static void appends() throws Exception {
        byte v2 = 2;
        long ever = Long.MAX_VALUE;
        TimestampType create = TimestampType.CREATE_TIME;
        TimestampType appended = TimestampType.LOG_APPEND_TIME;
        AppendOrigin client = AppendOrigin.CLIENT;
        SimpleRecord[] keyed = {new SimpleRecord(NOW, "a".getBytes(), "1".getBytes()), new SimpleRecord(NOW + 9, "b".getBytes(), "2".getBytes()),
            new SimpleRecord(NOW + 9, "c".getBytes(), "3".getBytes())};
        for (byte magic = 0; magic <= 2; magic++)
            for (CompressionType type : codecs(magic)) {
                String name = "v" + magic + "-" + type.name;
                append(name, build(magic, type, create, 0, samples(magic)), null, false, create, ever, ever, client);
                append(name + "-append-time", build(magic, type, create, 0, samples(magic)), null, false, appended, ever, ever, client);
                append(name + "-to-lz4", build(magic, type, create, 0, samples(magic)), CompressionType.LZ4, false, create, ever, ever, client);
                append(name + "-to-none", build(magic, type, create, 0, samples(magic)), CompressionType.NONE, false, create, ever, ever, client);
                append(name + "-compacted", build(magic, type, create, 0, samples(magic)), null, true, create, ever, ever, client);
                append(name + "-compacted-keyed", build(magic, type, create, 0, keyed), null, true, create, ever, ever, client);
                append(name + "-too-new", build(magic, type, create, 0, samples(magic)), null, false, create, ever, 1000, client);
                append(name + "-too-old", build(magic, type, create, 0, samples(magic)), null, false, create, 50, ever, client);
                append(name + "-too-old-and-compacted", build(magic, type, create, 0, samples(magic)), null, true, create, 50, 1000, client);
                if (magic > 0) {
                    append(name + "-producer-stamped", build(magic, type, appended, 0, samples(magic)), null, false, create, ever, ever, client);
                    append(name + "-producer-stamped-late", build(magic, type, appended, 0, samples(magic)), null, false, create, ever, 50, client);
                    append(name + "-producer-stamped-append-time", build(magic, type, appended, 0, samples(magic)), null, false, appended, ever, ever, client);
                }
                append(name + "-without-times", build(magic, type, create, 0, new SimpleRecord(-1L, null, "x".getBytes())), null, false, create, 50, 50, client);
            }
        MemoryRecords wrong = build(v2, CompressionType.NONE, create, 0, samples(v2));
        for (MutableRecordBatch batch : wrong.batches()) batch.setMaxTimestamp(create, 12345);
        append("wrong-max-timestamp", wrong, null, false, create, ever, ever, client);
        append("idempotent", MemoryRecords.withIdempotentRecords(codec(CompressionType.GZIP), 77, (short) 1, 5, keyed), null, false, create, ever, ever, client);
        MemoryRecords negative = MemoryRecords.withIdempotentRecords(codec(CompressionType.NONE), 77, (short) 1, 5, keyed);
        negative.buffer().putInt(53, -5);
        for (MutableRecordBatch batch : negative.batches()) batch.setMaxTimestamp(create, 1);
        append("negative-sequence", negative, null, false, create, ever, ever, client);
        append("transactional", MemoryRecords.withTransactionalRecords(codec(CompressionType.NONE), 77, (short) 1, 5, keyed), null, false, create, ever, ever, client);
        MemoryRecords marker = MemoryRecords.withEndTransactionMarker(0, NOW, 0, 77, (short) 1, new EndTransactionMarker(ControlRecordType.ABORT, 3));
        append("marker-by-client", marker, null, false, create, ever, ever, client);
        append("marker-by-coordinator", marker, CompressionType.GZIP, false, create, ever, ever, AppendOrigin.COORDINATOR);
        ByteBuffer two = ByteBuffer.allocate(4096);
        two.put(build(v2, CompressionType.NONE, create, 0, keyed).buffer());
        two.put(build(v2, CompressionType.NONE, create, 0, keyed).buffer());
        two.flip();
        append("two-batches", MemoryRecords.readableRecords(two), null, false, create, ever, ever, client);
        for (int count : new int[] {0, -1, 2, 4, 1 << 30}) {
            MemoryRecords miscounted = build(v2, CompressionType.NONE, create, 0, keyed);
            miscounted.buffer().putInt(57, count);
            for (MutableRecordBatch batch : miscounted.batches()) batch.setMaxTimestamp(create, 1);
            append("count-" + count, miscounted, null, false, create, ever, ever, client);
        }
    }

    // ---- down-conversion

    static void downConversions() throws Exception {
        for (byte magic = 0; magic <= 1; magic++)
            for (CompressionType type : codecs((byte) 1))
                for (long first : new long[] {0, 44}) {
                    for (TimestampType timestamps : List.of(TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)) {
                        MemoryRecords records = build((byte) 2, type, timestamps, 42, samples((byte) 2));
                        var converted = records.downConvert(magic, first, Time.SYSTEM).records();
                        line("down", "v" + magic + "-" + type.name + "-" + timestamps.name + "-" + first, hex(records), magic + "/" + first,
                            hex(converted), describe(converted.batches()));
                    }
                }
    }

    // ---- cleaning

    static void filters() throws Exception {
        for (CompressionType type : codecs((byte) 2)) {
            filter(type.name + "-some", build((byte) 2, type, TimestampType.CREATE_TIME, 42, samples((byte) 2)), BatchRetention.DELETE_EMPTY, 0b10001);
            filter(type.name + "-tombstone", build((byte) 2, type, TimestampType.CREATE_TIME, 42, samples((byte) 2)), BatchRetention.DELETE_EMPTY, 0b00110);
            filter(type.name + "-all", build((byte) 2, type, TimestampType.CREATE_TIME, 42, samples((byte) 2)), BatchRetention.DELETE_EMPTY, 0b11111);
            filter(type.name + "-append-time", build((byte) 2, type, TimestampType.LOG_APPEND_TIME, 42, samples((byte) 2)), BatchRetention.DELETE_EMPTY, 0b00101);
            filter(type.name + "-emptied", MemoryRecords.withTransactionalRecords(42L, codec(type), 77, (short) 1, 5, 6, samples((byte) 2)), BatchRetention.RETAIN_EMPTY, 0);
            filter(type.name + "-gone", build((byte) 2, type, TimestampType.CREATE_TIME, 42, samples((byte) 2)), BatchRetention.DELETE_EMPTY, 0);
        }
        for (CompressionType type : codecs((byte) 1))
            if (type != CompressionType.NONE)
                for (byte magic = 0; magic <= 1; magic++)
                    filter("v" + magic + "-" + type.name, build(magic, type, TimestampType.CREATE_TIME, 42, samples(magic)), BatchRetention.DELETE_EMPTY, 0b01010);
    }

    static void filter(String name, MemoryRecords records, BatchRetention retention, int kept) throws Exception {
        ByteBuffer out = ByteBuffer.allocate(1 << 16);
        records.filterTo(PARTITION, new RecordFilter(NOW, 5000) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(retention, false);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return (kept >> (record.offset() - 42) & 1) == 1;
            }
        }, out, Integer.MAX_VALUE, BufferSupplier.NO_CACHING);
        out.flip();
        MemoryRecords left = MemoryRecords.readableRecords(out);
        line("filter", name, hex(records), kept + "/" + (retention == BatchRetention.RETAIN_EMPTY), hex(left), headers(left.batches()), describe(left.batches()));
    }

    // ---- reading what others wrote

    static void read() throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String text = input.readLine(); text != null; text = input.readLine()) {
            try {
                MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(text.strip())));
                System.out.println(describe(records.batches()));
            } catch (RuntimeException problem) {
                System.out.println("error " + problem);
            }
        }
    }
}
