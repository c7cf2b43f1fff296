/* Load through librdkafka: what an application's client sees.
 *
 *   load produce --brokers B --topic T --partitions P --size S --count N --batch-bytes X --codec none|lz4 --acks -1
 *   load consume --brokers B --topic T --partitions P --count N [--from OFFSET]
 *   load latency --brokers B --topic T --size S --rate R --seconds D        (D = 0: until standard input closes)
 */
#include <librdkafka/rdkafka.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "common.h"

static atomic_long failed_deliveries;
static char first_failure[256];

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char problem[256];
    if (rd_kafka_conf_set(conf, name, value, problem, sizeof problem) != RD_KAFKA_CONF_OK)
        die("librdkafka setting %s=%s: %s", name, value, problem);
}

static void set_number(rd_kafka_conf_t *conf, const char *name, long long value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", value);
    set(conf, name, text);
}

static rd_kafka_t *new_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char problem[256];
    set(conf, "bootstrap.servers", option("brokers", "127.0.0.1:9092"));
    set(conf, "socket.nagle.disable", "true");
    /* name=value, a line each: what else a client needs to be let in. */
    char *lines = strdup(option("properties", ""));
    for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n")) {
        char *equals = strchr(line, '=');
        if (!equals)
            die("properties: %s is not name=value", line);
        *equals = 0;
        set(conf, line, equals + 1);
    }
    free(lines);
    rd_kafka_t *client = rd_kafka_new(type, conf, problem, sizeof problem);
    if (!client)
        die("librdkafka: %s", problem);
    return client;
}

static rd_kafka_topic_t *open_topic(rd_kafka_t *client) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, option("topic", "bench"), NULL);
    if (!topic)
        die("topic: %s", rd_kafka_err2str(rd_kafka_last_error()));
    return topic;
}

static void note_failure(rd_kafka_resp_err_t error) {
    if (atomic_fetch_add(&failed_deliveries, 1) == 0)
        snprintf(first_failure, sizeof first_failure, "%s", rd_kafka_err2str(error));
}

static void check_deliveries(void) {
    if (failed_deliveries)
        die("%ld messages were not delivered: %s", (long)failed_deliveries, first_failure);
}

/* ---- produce ---- */

static void on_failed_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client;
    (void)opaque;
    if (message->err)
        note_failure(message->err);
}

enum { CHUNK = 500 };

/* Hands one chunk over, waiting while the client's queue is full. */
static void produce_chunk(rd_kafka_t *client, rd_kafka_topic_t *topic, int partition, rd_kafka_message_t *chunk, int count) {
    int taken = rd_kafka_produce_batch(topic, partition, 0, chunk, count);
    for (int i = 0; taken < count && i < count; i++) {
        if (!chunk[i].err)
            continue;
        while (rd_kafka_produce(topic, partition, 0, chunk[i].payload, chunk[i].len, NULL, 0, NULL) == -1) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                die("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
            rd_kafka_poll(client, 1);
        }
        taken++;
    }
}

static void await_acknowledgements(rd_kafka_t *client) {
    int64_t deadline = now_ns() + 120000000000ll;
    while (rd_kafka_outq_len(client) > 0) {
        rd_kafka_poll(client, 0);
        usleep(200);
        if (now_ns() > deadline)
            die("%d messages still unacknowledged after two minutes", rd_kafka_outq_len(client));
    }
    check_deliveries();
}

static void produce(void) {
    size_t size = (size_t)option_number("size", 100);
    long count = (long)option_number("count", 1000000);
    int partitions = (int)option_number("partitions", 1);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "acks", option("acks", "-1"));
    set(conf, "compression.codec", option("codec", "none"));
    set_number(conf, "batch.size", option_number("batch-bytes", 1000000));
    set(conf, "batch.num.messages", "1000000");
    set_number(conf, "linger.ms", option_number("linger-ms", 5));
    /* A quarter of a GB in flight at most: enough to keep the sender busy, little enough to stay in memory already touched. */
    set(conf, "queue.buffering.max.messages", "1000000");
    set(conf, "queue.buffering.max.kbytes", "262144");
    /* Only failures come back one by one; success is the queue running empty. */
    set(conf, "delivery.report.only.error", "true");
    rd_kafka_conf_set_dr_msg_cb(conf, on_failed_delivery);
    rd_kafka_t *client = new_client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = open_topic(client);

    size_t pool_count = 4u * 1024 * 1024 / size + CHUNK;
    char *pool = malloc(pool_count * size);
    if (!pool)
        die("no memory for the payloads");
    fill_payload(pool, pool_count * size);

    /* Metadata, connections and the first append to every partition stay outside the measured time. */
    rd_kafka_message_t chunk[CHUNK];
    memset(chunk, 0, sizeof chunk);
    for (int partition = 0; partition < partitions; partition++) {
        chunk[0].payload = pool;
        chunk[0].len = size;
        produce_chunk(client, topic, partition, chunk, 1);
    }
    await_acknowledgements(client);

    double cpu_before = client_cpu_seconds();
    int64_t begin = now_ns();
    size_t next = 0;
    int partition = 0;
    for (long sent = 0; sent < count;) {
        int part = count - sent < CHUNK ? (int)(count - sent) : CHUNK;
        if (next + (size_t)part > pool_count)
            next = 0;
        for (int i = 0; i < part; i++) {
            chunk[i].payload = pool + (next + (size_t)i) * size;
            chunk[i].len = size;
        }
        next += (size_t)part;
        produce_chunk(client, topic, partition, chunk, part);
        partition = (partition + 1) % partitions;
        sent += part;
    }
    await_acknowledgements(client);
    double seconds = (double)(now_ns() - begin) / 1e9;
    printf("{\"records\": %ld, \"bytes\": %lld, \"seconds\": %.6f, \"client_cpu_seconds\": %.3f}\n", count,
           (long long)count * (long long)size, seconds, client_cpu_seconds() - cpu_before);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(client);
}

/* ---- consume ---- */

static rd_kafka_conf_t *consumer_conf(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "group.id", "bench");
    set(conf, "enable.auto.commit", "false");
    /* With the default of 100,000 queued messages the client pauses a whole second when its queue is full. */
    set(conf, "queued.min.messages", "10000000");
    set(conf, "queued.max.messages.kbytes", "1048576");
    return conf;
}

/* Faults in heap that the client's buffers will reuse; in blocks, as larger ones would be mapped apart and given back. */
static void touch_memory(size_t bytes) {
    enum { BLOCK = 16 * 1024 * 1024, BLOCKS = 64 };
    char *blocks[BLOCKS];
    size_t count = bytes / BLOCK < BLOCKS ? bytes / BLOCK : BLOCKS;
    for (size_t i = 0; i < count; i++) {
        blocks[i] = malloc(BLOCK);
        if (!blocks[i])
            die("no memory to touch");
        memset(blocks[i], 1, BLOCK);
    }
    for (size_t i = 0; i < count; i++)
        free(blocks[i]);
}

static void consume(void) {
    long count = (long)option_number("count", 1000000);
    int partitions = (int)option_number("partitions", 1);
    int64_t from = option_number("from", 0);
    touch_memory(768u * 1024 * 1024);
    rd_kafka_t *client = new_client(RD_KAFKA_CONSUMER, consumer_conf());
    rd_kafka_topic_t *topic = open_topic(client);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    for (int partition = 0; partition < partitions; partition++)
        if (rd_kafka_consume_start_queue(topic, partition, from, queue) == -1)
            die("consume: %s", rd_kafka_err2str(rd_kafka_last_error()));

    enum { ROOM = 4096 };
    static rd_kafka_message_t *messages[ROOM];
    long records = 0, bytes = 0, seen = 0;
    int64_t begin = 0, end = 0, deadline = now_ns() + 120000000000ll;
    double cpu_before = 0;
    while (seen < count) {
        /* The call waits until it has all it was asked for, so the last one asks for no more than is missing. */
        size_t wanted = count - seen < ROOM ? (size_t)(count - seen) : ROOM;
        ssize_t got = rd_kafka_consume_batch_queue(queue, 1000, messages, wanted);
        if (got < 0)
            die("consume: %s", rd_kafka_err2str(rd_kafka_last_error()));
        long batch_records = 0, batch_bytes = 0;
        for (ssize_t i = 0; i < got; i++) {
            if (messages[i]->err && messages[i]->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
                die("consume: %s", rd_kafka_message_errstr(messages[i]));
            if (!messages[i]->err) {
                batch_records++;
                batch_bytes += (long)messages[i]->len;
            }
            rd_kafka_message_destroy(messages[i]);
        }
        seen += batch_records;
        end = now_ns();
        if (begin) {
            records += batch_records;
            bytes += batch_bytes;
        } else if (batch_records) {
            /* The clock starts when the first messages are there; they belong to the time before it. */
            begin = end;
            cpu_before = client_cpu_seconds();
        }
        if (end > deadline)
            die("only %ld of %ld messages came within two minutes", seen, count);
    }
    printf("{\"records\": %ld, \"bytes\": %ld, \"seconds\": %.6f, \"client_cpu_seconds\": %.3f}\n", records, bytes,
           (double)(end - begin) / 1e9, client_cpu_seconds() - cpu_before);
    fflush(stdout);
    /* Everything was measured; draining what was fetched beyond the count would only cost time. */
    _exit(0);
}

/* ---- latency ---- */

static samples_t produce_samples, end_to_end_samples;
static atomic_long consumed;
static atomic_int stopping;
static int64_t measure_from;

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client;
    (void)opaque;
    int64_t sent = (int64_t)(intptr_t)message->_private;
    if (message->err)
        note_failure(message->err);
    else if (sent >= measure_from)
        samples_add(&produce_samples, now_ns() - sent);
}

static void *poll_deliveries(void *client) {
    while (!stopping)
        rd_kafka_poll(client, 50);
    return NULL;
}

static void *poll_messages(void *queue) {
    while (!stopping) {
        rd_kafka_message_t *message = rd_kafka_consume_queue(queue, 50);
        if (!message)
            continue;
        if (!message->err && message->len >= sizeof(int64_t)) {
            int64_t sent;
            memcpy(&sent, message->payload, sizeof sent);
            if (sent >= measure_from)
                samples_add(&end_to_end_samples, now_ns() - sent);
            atomic_fetch_add(&consumed, 1);
        } else if (message->err && message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            die("consume: %s", rd_kafka_message_errstr(message));
        }
        rd_kafka_message_destroy(message);
    }
    return NULL;
}

static void *await_end_of_input(void *flag) {
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    atomic_store((atomic_int *)flag, 1);
    return NULL;
}

static void latency(void) {
    size_t size = (size_t)option_number("size", 1024);
    long rate = (long)option_number("rate", 1000), sent = 0;
    double seconds = atof(option("seconds", "5"));
    int64_t warm_ns = (int64_t)(atof(option("warm-seconds", "1")) * 1e9);
    samples_init(&produce_samples, 1u << 20);
    samples_init(&end_to_end_samples, 1u << 20);

    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "acks", option("acks", "-1"));
    set(conf, "linger.ms", "0");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *producer = new_client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *target = open_topic(producer);
    rd_kafka_t *consumer = new_client(RD_KAFKA_CONSUMER, consumer_conf());
    rd_kafka_queue_t *queue = rd_kafka_queue_new(consumer);
    if (rd_kafka_consume_start_queue(open_topic(consumer), 0, RD_KAFKA_OFFSET_BEGINNING, queue) == -1)
        die("consume: %s", rd_kafka_err2str(rd_kafka_last_error()));

    static atomic_int input_ended;
    pthread_t deliveries, messages, input;
    if (seconds <= 0)
        pthread_create(&input, NULL, await_end_of_input, &input_ended);
    int64_t begin = now_ns(), step = 1000000000 / rate;
    measure_from = begin + warm_ns;
    int64_t end = seconds > 0 ? measure_from + (int64_t)(seconds * 1e9) : INT64_MAX;
    pthread_create(&deliveries, NULL, poll_deliveries, producer);
    pthread_create(&messages, NULL, poll_messages, queue);

    char *payload = malloc(size < 8 ? 8 : size);
    fill_payload(payload, size);
    for (int64_t at = begin; at < end && !input_ended; at += step) {
        sleep_until_ns(at);
        int64_t stamp = now_ns();
        memcpy(payload, &stamp, sizeof stamp);
        if (rd_kafka_produce(target, 0, RD_KAFKA_MSG_F_COPY, payload, size, NULL, 0, (void *)(intptr_t)stamp) == -1)
            die("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        sent++;
    }
    int64_t deadline = now_ns() + 30000000000ll;
    while ((consumed < sent || rd_kafka_outq_len(producer) > 0) && now_ns() < deadline)
        usleep(1000);
    stopping = 1;
    pthread_join(deliveries, NULL);
    pthread_join(messages, NULL);
    check_deliveries();
    if (consumed < sent)
        die("%ld of %ld messages never came back", sent - (long)consumed, sent);
    samples_sort(&produce_samples);
    samples_sort(&end_to_end_samples);
    printf("{\"records\": %zu, \"produce_p50_us\": %.1f, \"produce_p99_us\": %.1f, \"end_to_end_p50_us\": %.1f, "
           "\"end_to_end_p99_us\": %.1f}\n",
           produce_samples.count, percentile_us(&produce_samples, 0.5), percentile_us(&produce_samples, 0.99),
           percentile_us(&end_to_end_samples, 0.5), percentile_us(&end_to_end_samples, 0.99));
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc < 2)
        die("usage: load produce|consume|latency --name value ...");
    option_words = argv + 2;
    option_count = argc - 2;
    /* Freed buffers stay with the process, so that a page is faulted in once, before or early in the measurement. */
    mallopt(M_MMAP_THRESHOLD, 32 * 1024 * 1024);
    mallopt(M_TRIM_THRESHOLD, INT32_MAX);
    mallopt(M_ARENA_MAX, 1);
    if (!strcmp(argv[1], "produce"))
        produce();
    else if (!strcmp(argv[1], "consume"))
        consume();
    else if (!strcmp(argv[1], "latency"))
        latency();
    else
        die("load: no mode %s", argv[1]);
    return 0;
}
