/* Makes file operations below one directory fail on demand (LD_PRELOAD).
 *
 * FAILING_CALLS_UNDER   the directory
 * FAILING_CALLS_SWITCH  a file "<errno> <letters>": while it exists, calls of these kinds fail with that errno;
 *                       a negative number makes them take so many milliseconds instead
 *                       w write, truncate   s sync   r read   c create, rename, unlink, open for writing
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

/* Read anew each time: the test flips the switch while we run. Uses no call that is replaced here. */
static int armed(char kind) {
    const char *path = getenv("FAILING_CALLS_SWITCH");
    FILE *file = path ? fopen(path, "re") : NULL;
    int number = 0;
    char kinds[16] = "";
    if (!file) return 0;
    if (fscanf(file, "%d %15s", &number, kinds) != 2) number = 0;
    fclose(file);
    return strchr(kinds, kind) ? number : 0;
}

/* The errno to fail with; 0 after the delay of a call that is only slow. */
static int failure(char kind) {
    int number = armed(kind);
    if (number >= 0) return number;
    usleep(-number * 1000);
    return 0;
}

static int below(const char *path) {
    const char *root = getenv("FAILING_CALLS_UNDER");
    return root && path && strncmp(path, root, strlen(root)) == 0;
}

static int fails(int fd, char kind) {
    char link[64], path[4096];
    int saved = errno, number = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size > 0) {
        path[size] = 0;
        if (below(path)) number = failure(kind);
    }
    errno = number ? number : saved;
    return number != 0;
}

static int path_fails(const char *path, char kind) {
    int saved = errno, number = below(path) ? failure(kind) : 0;
    errno = number ? number : saved;
    return number != 0;
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return fails(fd, 'w') ? -1 : real(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    return fails(fd, 'w') ? -1 : real(fd, parts, count);
}

int ftruncate64(int fd, off64_t size) {
    REAL(int, "ftruncate64", int, off64_t);
    return fails(fd, 'w') ? -1 : real(fd, size);
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    return fails(fd, 's') ? -1 : real(fd);
}

int fsync(int fd) {
    REAL(int, "fsync", int);
    return fails(fd, 's') ? -1 : real(fd);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t at) {
    REAL(ssize_t, "pread64", int, void *, size_t, off64_t);
    return fails(fd, 'r') ? -1 : real(fd, data, size, at);
}

ssize_t pread(int fd, void *data, size_t size, off_t at) { return pread64(fd, data, size, at); }

ssize_t sendfile64(int out, int in, off64_t *at, size_t size) {
    REAL(ssize_t, "sendfile64", int, int, off64_t *, size_t);
    return fails(in, 'r') ? -1 : real(out, in, at, size);
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    return path_fails(to, 'c') ? -1 : real(from, to);
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    return path_fails(path, 'c') ? -1 : real(path);
}

int open64(const char *path, int flags, ...) {
    REAL(int, "open64", const char *, int, ...);
    va_list rest;
    va_start(rest, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    if (flags & (O_WRONLY | O_RDWR | O_CREAT) && path_fails(path, 'c')) return -1;
    return real(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    return open64(path, flags, mode);
}
