/* What the benchmark's two client programs share: options, time, samples and payloads.
 *
 * Options are `--name value` pairs. Results go to standard output as one JSON object on one line; anything that goes wrong
 * goes to standard error and ends the program with a non-zero status, so that a broken run never looks like a slow one.
 */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static inline void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

/* ---- options ---- */

static int option_count;
static char **option_words;

static inline const char *option(const char *name, const char *fallback) {
    for (int i = 0; i + 1 < option_count; i += 2)
        if (!strncmp(option_words[i], "--", 2) && !strcmp(option_words[i] + 2, name))
            return option_words[i + 1];
    return fallback;
}

static inline long long option_number(const char *name, long long fallback) {
    const char *text = option(name, NULL);
    return text ? atoll(text) : fallback;
}

/* ---- time ---- */

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void sleep_until_ns(int64_t deadline) {
    struct timespec t = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

/* Processor seconds of this client, so that a reader can see whether the client was the limit. */
static inline double client_cpu_seconds(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

/* ---- samples ---- */

typedef struct {
    int64_t *values;
    size_t count, room;
} samples_t;

/* Room is taken and touched up front: growing during a measurement would put page faults into the percentiles. */
static inline void samples_init(samples_t *s, size_t room) {
    s->values = malloc(room * sizeof *s->values);
    if (!s->values)
        die("no memory for %zu samples", room);
    memset(s->values, 1, room * sizeof *s->values);
    s->count = 0;
    s->room = room;
}

static inline void samples_add(samples_t *s, int64_t value) {
    if (s->count == s->room) {
        s->room *= 2;
        s->values = realloc(s->values, s->room * sizeof *s->values);
        if (!s->values)
            die("no memory for %zu samples", s->room);
    }
    s->values[s->count++] = value;
}

static int compare_samples(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Nearest rank; call samples_sort first. */
static inline double percentile_us(const samples_t *s, double fraction) {
    if (!s->count)
        return -1;
    size_t rank = (size_t)(fraction * (double)s->count);
    if (rank >= s->count)
        rank = s->count - 1;
    return (double)s->values[rank] / 1e3;
}

static inline void samples_sort(samples_t *s) {
    qsort(s->values, s->count, sizeof *s->values, compare_samples);
}

/* ---- payloads ---- */

static uint64_t random_state = 0x9e3779b97f4a7c15ull;

static inline uint64_t random_next(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Text as services log it: words from a small vocabulary between random hexadecimal ids, which lz4 brings to about half. */
static inline void fill_payload(char *out, size_t size) {
    static const char *words[] = {"session=", "user=",   "action=view ", "action=buy ", "status=200 ", "status=404 ",
                                  "path=/catalog/item/", "region=eu-west-1 ", "agent=mobile ", "trace="};
    size_t at = 0;
    while (at < size) {
        const char *word = words[random_next() % (sizeof words / sizeof *words)];
        for (; *word && at < size; word++)
            out[at++] = *word;
        uint64_t bits = random_next();
        for (int i = 0; i < 10 && at < size; i++, bits >>= 4)
            out[at++] = "0123456789abcdef"[bits & 15];
        if (at < size)
            out[at++] = ' ';
    }
}

#endif
