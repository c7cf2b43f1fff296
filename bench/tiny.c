/* Load through raw sockets: requests of one record each, exactly one request per record, nothing of a client library between.
 *
 *   tiny produce --host H --port P --topic T --partitions N --connections C --in-flight K --seconds D --size S [--acks -1]
 *   tiny fetch   (same; reads single batches that `tiny produce` wrote: --records R of them in each partition)
 *   tiny touch   --partitions N: one record to each partition, on one connection
 *   tiny paced   --rate R --seconds D: one connection, one request in flight, at a fixed rate; percentiles of the reply time
 *   tiny hold    --connections C: opens C connections, asks ApiVersions on each, then waits for standard input to close
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"
#include "templates.h"

enum { MAX_IN_FLIGHT = 64, READ_ROOM = 8192, HEADER_CORRELATION = 8 };

typedef struct {
    int fd;
    int in_flight;
    size_t filled;
    int64_t sent_at[MAX_IN_FLIGHT]; /* ring: replies come in the order of the requests */
    unsigned send_slot, reply_slot;
    unsigned char *buffer;
} connection_t;

typedef enum { PRODUCE, FETCH } kind_t;

static kind_t kind;
static int partitions;
static int64_t records_per_partition, sequence;

/* ---- connections ---- */

static int dial(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)option_number("port", 9092))};
    if (inet_pton(AF_INET, option("host", "127.0.0.1"), &address.sin_addr) != 1)
        die("not an IPv4 address: %s", option("host", ""));
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0)
        die("socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&address, sizeof address))
        die("connect: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void raise_handle_limit(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static connection_t *open_connections(int count) {
    connection_t *all = calloc((size_t)count, sizeof *all);
    for (int i = 0; all && i < count; i++) {
        all[i].fd = dial();
        all[i].buffer = malloc(READ_ROOM);
        if (!all[i].buffer)
            die("no memory for connections");
        memset(all[i].buffer, 0, READ_ROOM);
    }
    if (!all)
        die("no memory for connections");
    return all;
}

static void send_request(connection_t *c) {
    set_number(template + HEADER_CORRELATION, (uint64_t)sequence & 0x7fffffff, 4);
    set_number(template + partition_at, (uint64_t)(sequence % partitions), 4);
    if (kind == FETCH)
        set_number(template + offset_at, (uint64_t)(sequence / partitions % records_per_partition), 8);
    sequence++;
    c->sent_at[c->send_slot++ % MAX_IN_FLIGHT] = now_ns();
    c->in_flight++;
    for (size_t done = 0; done < template_size;) {
        ssize_t sent = send(c->fd, template + done, template_size - done, MSG_NOSIGNAL);
        if (sent < 0)
            die("send: %s", strerror(errno));
        done += (size_t)sent;
    }
}

static void check_reply(const unsigned char *frame, size_t size) {
    if (size < reply_error_at + 2)
        die("a reply of %zu bytes is too short", size);
    int error = (int16_t)get_number(frame + reply_error_at, 2);
    if (error)
        die("the broker answered with error code %d", error);
    if (kind == FETCH) {
        size_t length_at = reply_error_at + 2 + 8 + 8 + 8 + 4 + 4;
        if (size < length_at + 4 || (int32_t)get_number(frame + length_at, 4) <= 0)
            die("a fetch came back without records");
    }
}

/* Takes what has arrived; each whole reply is checked, timed and counted. Returns how many there were. */
static int receive(connection_t *c, samples_t *samples, int flags) {
    ssize_t got = recv(c->fd, c->buffer + c->filled, READ_ROOM - c->filled, flags);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (got <= 0)
        die("the broker closed a connection: %s", got ? strerror(errno) : "end of stream");
    c->filled += (size_t)got;
    size_t at = 0;
    int replies = 0;
    int64_t now = now_ns();
    while (c->filled - at >= 4) {
        size_t size = 4 + get_number(c->buffer + at, 4);
        if (size > READ_ROOM)
            die("a reply of %zu bytes is larger than expected", size);
        if (c->filled - at < size)
            break;
        check_reply(c->buffer + at, size);
        samples_add(samples, now - c->sent_at[c->reply_slot++ % MAX_IN_FLIGHT]);
        c->in_flight--;
        replies++;
        at += size;
    }
    memmove(c->buffer, c->buffer + at, c->filled - at);
    c->filled -= at;
    return replies;
}

/* ---- modes ---- */

static void print_result(samples_t *samples, double seconds, double cpu) {
    samples_sort(samples);
    printf("{\"requests\": %zu, \"seconds\": %.6f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"client_cpu_seconds\": %.3f}\n",
           samples->count, seconds, percentile_us(samples, 0.5), percentile_us(samples, 0.99), cpu);
    fflush(stdout);
}

static void saturate(void) {
    int count = (int)option_number("connections", 1), in_flight = (int)option_number("in-flight", 1);
    double seconds = atof(option("seconds", "2")), warm = atof(option("warm-seconds", "0.5"));
    int patience_ms = (int)option_number("patience-ms", 1000);
    if (in_flight > MAX_IN_FLIGHT)
        die("at most %d in flight", MAX_IN_FLIGHT);
    samples_t samples;
    samples_init(&samples, 1u << 20);
    connection_t *all = open_connections(count);
    int poller = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, all[i].fd, &event))
            die("epoll: %s", strerror(errno));
    }
    for (int i = 0; i < count; i++)
        for (int k = 0; k < in_flight; k++)
            send_request(&all[i]);
    int64_t begin = now_ns() + (int64_t)(warm * 1e9), end = begin + (int64_t)(seconds * 1e9), now = 0;
    double cpu = 0;
    int measuring = 0;
    struct epoll_event events[512];
    while ((now = now_ns()) < end) {
        if (!measuring && now >= begin) {
            measuring = 1;
            begin = now;
            samples.count = 0;
            cpu = client_cpu_seconds();
        }
        int ready = epoll_wait(poller, events, 512, patience_ms);
        if (ready < 0 && errno != EINTR)
            die("epoll: %s", strerror(errno));
        if (ready == 0 && now_ns() - now > patience_ms * 900000LL)
            die("no reply for %d ms", patience_ms);
        for (int i = 0; i < ready; i++) {
            connection_t *c = events[i].data.ptr;
            for (int replies = receive(c, &samples, MSG_DONTWAIT); replies > 0; replies--)
                send_request(c);
        }
    }
    print_result(&samples, (double)(now - begin) / 1e9, client_cpu_seconds() - cpu);
}

static void touch(void) {
    samples_t samples;
    samples_init(&samples, (size_t)partitions + 1);
    connection_t *c = open_connections(1);
    int64_t begin = now_ns();
    while (samples.count < (size_t)partitions) {
        while (c->in_flight < 5 && sequence < partitions)
            send_request(c);
        receive(c, &samples, 0);
    }
    print_result(&samples, (double)(now_ns() - begin) / 1e9, 0);
}

static void paced(void) {
    long rate = (long)option_number("rate", 1000);
    double seconds = atof(option("seconds", "5")), warm = atof(option("warm-seconds", "0.5"));
    samples_t samples;
    samples_init(&samples, 1u << 20);
    connection_t *c = open_connections(1);
    int64_t begin = now_ns(), step = 1000000000 / rate, measured = begin + (int64_t)(warm * 1e9);
    int64_t end = measured + (int64_t)(seconds * 1e9);
    for (int64_t at = begin; at < end; at += step) {
        sleep_until_ns(at);
        if (at - step < measured && at >= measured)
            samples.count = 0;
        send_request(c);
        while (c->in_flight)
            receive(c, &samples, 0);
    }
    print_result(&samples, seconds, 0);
}

static void hold(void) {
    int count = (int)option_number("connections", 1000);
    int *all = calloc((size_t)count, sizeof *all);
    if (!all)
        die("no memory for connections");
    put_header(18, 0);
    finish_template();
    int64_t begin = now_ns();
    for (int i = 0; i < count; i++) {
        all[i] = dial();
        if (send(all[i], template, template_size, MSG_NOSIGNAL) != (ssize_t)template_size)
            die("send: %s", strerror(errno));
        unsigned char reply[4096], *at = reply;
        size_t size = 4;
        while ((size_t)(at - reply) < size) {
            ssize_t got = recv(all[i], at, sizeof reply - (size_t)(at - reply), 0);
            if (got <= 0)
                die("connection %d got no answer", i);
            at += got;
            if (at - reply >= 4)
                size = 4 + get_number(reply, 4);
            if (size > sizeof reply)
                die("an ApiVersions reply of %zu bytes is larger than expected", size);
        }
    }
    printf("{\"connections\": %d, \"seconds\": %.6f}\n", count, (double)(now_ns() - begin) / 1e9);
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
}

int main(int argc, char **argv) {
    if (argc < 2)
        die("usage: tiny produce|fetch|touch|paced|hold --name value ...");
    option_words = argv + 2;
    option_count = argc - 2;
    raise_handle_limit();
    const char *topic = option("topic", "tiny");
    partitions = (int)option_number("partitions", 1);
    records_per_partition = option_number("records", 1);
    kind = !strcmp(argv[1], "fetch") ? FETCH : PRODUCE;
    if (kind == FETCH)
        build_fetch(topic);
    else
        build_produce(topic);
    if (!strcmp(argv[1], "produce") || !strcmp(argv[1], "fetch"))
        saturate();
    else if (!strcmp(argv[1], "touch"))
        touch();
    else if (!strcmp(argv[1], "paced"))
        paced();
    else if (!strcmp(argv[1], "hold"))
        hold();
    else
        die("tiny: no mode %s", argv[1]);
    return 0;
}
