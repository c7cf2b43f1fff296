/* Requests as bytes, written once; only the fields that change are patched before each send.
 *
 *   produce v8   size | header: key 0, version, correlation, client id | transactional id | acks | timeout | [topic | [partition | records]]
 *   fetch v11    size | header: key 1, … | replica -1 | max wait | min bytes | max bytes | isolation | session 0, epoch -1 |
 *                [topic | [partition, leader epoch, offset, log start, max bytes]] | [] | rack ""
 */
#ifndef BENCH_TEMPLATES_H
#define BENCH_TEMPLATES_H

#include "common.h"

static unsigned char template[70000];
static size_t template_size, partition_at, offset_at, reply_error_at;

static void put(const void *bytes, size_t count) {
    if (template_size + count > sizeof template)
        die("request too large");
    memcpy(template + template_size, bytes, count);
    template_size += count;
}

static void put_number(uint64_t value, int width) {
    for (int i = width - 1; i >= 0; i--) {
        unsigned char byte = (unsigned char)(value >> (8 * i));
        put(&byte, 1);
    }
}

static void put_text(const char *text) {
    put_number(strlen(text), 2);
    put(text, strlen(text));
}

static void set_number(unsigned char *at, uint64_t value, int width) {
    for (int i = 0; i < width; i++)
        at[i] = (unsigned char)(value >> (8 * (width - 1 - i)));
}

static uint64_t get_number(const unsigned char *at, int width) {
    uint64_t value = 0;
    for (int i = 0; i < width; i++)
        value = value << 8 | at[i];
    return value;
}

static void put_varint(int64_t value) {
    uint64_t rest = (uint64_t)(value << 1) ^ (uint64_t)(value >> 63);
    do {
        unsigned char byte = rest & 0x7f;
        rest >>= 7;
        if (rest)
            byte |= 0x80;
        put(&byte, 1);
    } while (rest);
}

static int varint_size(int64_t value) {
    uint64_t rest = (uint64_t)(value << 1) ^ (uint64_t)(value >> 63);
    int size = 1;
    while (rest >>= 7)
        size++;
    return size;
}

static uint32_t crc32c(const unsigned char *bytes, size_t count) {
    uint32_t crc = 0xffffffff;
    while (count--) {
        crc ^= *bytes++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82f63b78 & -(crc & 1));
    }
    return ~crc;
}

/* One batch (magic 2) with one record without key. */
static void put_batch(size_t value_size) {
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    uint64_t timestamp = (uint64_t)wall.tv_sec * 1000;
    size_t start = template_size;
    put_number(0, 8); /* base offset */
    put_number(0, 4); /* length, below */
    put_number((uint64_t)-1, 4);
    put_number(2, 1);
    put_number(0, 4); /* checksum, below */
    size_t checked = template_size;
    put_number(0, 2); /* attributes */
    put_number(0, 4); /* last offset delta */
    put_number(timestamp, 8);
    put_number(timestamp, 8);
    put_number((uint64_t)-1, 8);
    put_number((uint64_t)-1, 2);
    put_number((uint64_t)-1, 4);
    put_number(1, 4);
    /* attributes, timestamp delta, offset delta, key length -1, value length, value, headers 0 */
    put_varint((int64_t)(1 + 1 + 1 + 1 + (size_t)varint_size((int64_t)value_size) + value_size + 1));
    put_number(0, 1);
    put_varint(0);
    put_varint(0);
    put_varint(-1);
    put_varint((int64_t)value_size);
    char value[65536];
    if (value_size > sizeof value)
        die("record too large");
    fill_payload(value, value_size);
    put(value, value_size);
    put_varint(0);
    set_number(template + start + 8, template_size - start - 12, 4);
    set_number(template + checked - 4, crc32c(template + checked, template_size - checked), 4);
}

static void put_header(int key, int version) {
    template_size = 0;
    put_number(0, 4);
    put_number((uint64_t)key, 2);
    put_number((uint64_t)version, 2);
    put_number(0, 4);
    put_text("bench");
}

static void finish_template(void) { set_number(template, template_size - 4, 4); }

static void build_produce(const char *topic) {
    put_header(0, 8);
    put_number((uint64_t)-1, 2); /* no transactional id */
    put_number((uint64_t)option_number("acks", -1), 2);
    put_number(30000, 4);
    put_number(1, 4);
    put_text(topic);
    put_number(1, 4);
    partition_at = template_size;
    put_number(0, 4);
    size_t length_at = template_size;
    put_number(0, 4);
    put_batch((size_t)option_number("size", 100));
    set_number(template + length_at, template_size - length_at - 4, 4);
    finish_template();
    reply_error_at = 4 + 4 + 4 + 2 + strlen(topic) + 4 + 4;
}

static void build_fetch(const char *topic) {
    put_header(1, 11);
    put_number((uint64_t)-1, 4);
    put_number(500, 4);
    put_number(1, 4);
    put_number(1, 4); /* one byte at most: the broker still returns one whole batch */
    put_number(0, 1);
    put_number(0, 4);
    put_number((uint64_t)-1, 4);
    put_number(1, 4);
    put_text(topic);
    put_number(1, 4);
    partition_at = template_size;
    put_number(0, 4);
    put_number((uint64_t)-1, 4);
    offset_at = template_size;
    put_number(0, 8);
    put_number((uint64_t)-1, 8);
    put_number(1, 4);
    put_number(0, 4);
    put_text("");
    finish_template();
    reply_error_at = 4 + 4 + 4 + 2 + 4 + 4 + 2 + strlen(topic) + 4 + 4;
}

#endif
