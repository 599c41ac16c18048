/* Fault injection for one SQLite database, preloaded into a worker (LD_PRELOAD).
 *
 * Wraps the calls by which SQLite opens, locks, reads, writes, syncs and truncates files, and lets
 * some of them fail. Only the database `FOREVER_FAULTS_FILE` and its `-wal`, `-shm` and `-journal`
 * are affected. `FOREVER_FAULTS` holds the windows, separated by `;`:
 *
 *     kind,first,micros,one_in
 *
 * A window opens at the call number `first` (from 0) among those that its kind applies to, and stays
 * open for `micros` microseconds, or for that one call if that is 0. While it is open one call of
 * `one_in` fails, drawn from `FOREVER_FAULTS_SEED`. Every injected fault is counted in the file
 * `FOREVER_FAULTS_COUNTS`, an array of 64-bit numbers in the order of `enum kind`, which is mapped
 * so that counts survive SIGKILL.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum kind { EIO_READ, EIO_WRITE, NO_SPACE, SHORT_WRITE, TORN_WRITE, SYNC, OPEN, LOCK, KINDS };
static const char *const NAMES[KINDS] = {"eio-read", "eio-write", "enospc", "short",
                                         "torn",     "fsync",     "open",   "lock"};

/* Which file a descriptor is. */
enum file { OTHER, DATABASE, WAL, SHM, JOURNAL };

struct window {
    enum kind kind;
    uint64_t first, micros, one_in;
    atomic_uint_fast64_t calls;
    /* When it opened, in microseconds of the monotonic clock; 0 before. */
    atomic_uint_fast64_t opened;
};

#define MAX_WINDOWS 32
#define MAX_FDS 4096

static struct window windows[MAX_WINDOWS];
static size_t window_count;
static char database[PATH_MAX];
static size_t database_len;
static _Atomic uint64_t unused_counts[KINDS];
static _Atomic uint64_t *counts = unused_counts;
static atomic_uint_fast64_t seed;
static _Atomic unsigned char files[MAX_FDS];
/* The error that follows a short write on a descriptor. */
static _Atomic int after_short[MAX_FDS];

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

/* SplitMix64. */
static uint64_t random_number(void) {
    uint64_t z = atomic_fetch_add(&seed, 0x9e3779b97f4a7c15u) + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

__attribute__((constructor)) static void prepare(void) {
    const char *file = getenv("FOREVER_FAULTS_FILE"), *list = getenv("FOREVER_FAULTS");
    const char *from = getenv("FOREVER_FAULTS_SEED"), *to = getenv("FOREVER_FAULTS_COUNTS");
    if (!file || !list || !to || strlen(file) >= sizeof database) return;
    int fd = open(to, O_RDWR | O_CLOEXEC);
    void *map = fd < 0 ? MAP_FAILED
                       : mmap(NULL, sizeof unused_counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (map == MAP_FAILED) {
        perror("the counts of injected faults cannot be mapped");
        _exit(1);
    }
    counts = map;
    atomic_store(&seed, from ? strtoull(from, NULL, 10) : 0);
    while (*list && window_count < MAX_WINDOWS) {
        struct window *window = &windows[window_count];
        size_t len = strcspn(list, ",");
        window->kind = KINDS;
        for (int kind = 0; kind < KINDS; kind++)
            if (strlen(NAMES[kind]) == len && !strncmp(NAMES[kind], list, len)) window->kind = kind;
        unsigned long long first, micros, one_in;
        if (window->kind == KINDS || sscanf(list + len, ",%llu,%llu,%llu", &first, &micros, &one_in) != 3 || !one_in) {
            fprintf(stderr, "FOREVER_FAULTS cannot be read: %s\n", list);
            _exit(1);
        }
        window->first = first, window->micros = micros, window->one_in = one_in;
        window_count++;
        list += strcspn(list, ";");
        list += *list == ';';
    }
    strcpy(database, file);
    database_len = strlen(database);
}

static enum file file_of(int fd) {
    return fd >= 0 && fd < MAX_FDS ? atomic_load_explicit(&files[fd], memory_order_relaxed) : OTHER;
}

static enum file file_at(const char *path) {
    if (!database_len || !path || strncmp(path, database, database_len)) return OTHER;
    const char *suffix = path + database_len;
    if (!*suffix) return DATABASE;
    if (!strcmp(suffix, "-wal")) return WAL;
    if (!strcmp(suffix, "-shm")) return SHM;
    return strcmp(suffix, "-journal") ? OTHER : JOURNAL;
}

/* Whether a call of this kind fails now. */
static int fails(enum kind kind) {
    for (size_t n = 0; n < window_count; n++) {
        struct window *window = &windows[n];
        if (window->kind != kind || atomic_fetch_add(&window->calls, 1) < window->first) continue;
        uint64_t closed = 0, time = now();
        if (atomic_compare_exchange_strong(&window->opened, &closed, time)) {
            /* The first call of a window always fails. */
        } else if (time - closed >= window->micros || random_number() % window->one_in) {
            continue;
        }
        atomic_fetch_add(&counts[kind], 1);
        return 1;
    }
    return 0;
}

/* Decides about a write of `size` bytes: how many are written, and the error that the call or the
 * next one ends with. A torn write does not return. */
struct fate {
    size_t written;
    int error;
    int dies;
};

static struct fate fate_of_write(int fd, size_t size) {
    struct fate whole = {size, 0, 0};
    enum file file = file_of(fd);
    if (file == OTHER) return whole;
    int pending = atomic_exchange(&after_short[fd], 0);
    if (pending) return (struct fate){0, pending, 0};
    if (file != SHM && size > 1) {
        size_t prefix = 1 + random_number() % (size - 1);
        if (fails(TORN_WRITE)) return (struct fate){prefix, 0, 1};
        if (fails(SHORT_WRITE)) {
            atomic_store(&after_short[fd], random_number() % 2 ? EIO : ENOSPC);
            return (struct fate){prefix, 0, 0};
        }
    }
    if (fails(EIO_WRITE)) return (struct fate){0, EIO, 0};
    if (fails(NO_SPACE)) return (struct fate){0, ENOSPC, 0};
    return whole;
}

static ssize_t failed(int error) {
    errno = error;
    return -1;
}

static void die(void) {
    for (;;) {
        kill(getpid(), SIGKILL);
        pause();
    }
}

#define WRITE(name, real_call) \
    struct fate fate = fate_of_write(fd, size); \
    if (fate.error) return failed(fate.error); \
    size = fate.written; \
    ssize_t written = real_call; \
    if (fate.dies) die(); \
    return written

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    WRITE(write, real(fd, data, size));
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    REAL(pwrite);
    WRITE(pwrite, real(fd, data, size, at));
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    REAL(pwrite64);
    WRITE(pwrite64, real(fd, data, size, at));
}

static int read_fails(int fd) {
    return file_of(fd) != OTHER && fails(EIO_READ);
}

ssize_t read(int fd, void *data, size_t size) {
    REAL(read);
    return read_fails(fd) ? failed(EIO) : real(fd, data, size);
}

ssize_t pread(int fd, void *data, size_t size, off_t at) {
    REAL(pread);
    return read_fails(fd) ? failed(EIO) : real(fd, data, size, at);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t at) {
    REAL(pread64);
    return read_fails(fd) ? failed(EIO) : real(fd, data, size, at);
}

/* The data of a sync that fails stays in the page cache: a process that dies takes nothing of it
 * along, only the loss of power would. */
static int sync_fails(int fd) {
    return file_of(fd) != OTHER && fails(SYNC);
}

int fsync(int fd) {
    REAL(fsync);
    return sync_fails(fd) ? (int)failed(EIO) : real(fd);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    return sync_fails(fd) ? (int)failed(EIO) : real(fd);
}

static int truncate_fails(int fd) {
    return file_of(fd) != OTHER && fails(NO_SPACE);
}

int ftruncate(int fd, off_t size) {
    REAL(ftruncate);
    return truncate_fails(fd) ? (int)failed(ENOSPC) : real(fd, size);
}

int ftruncate64(int fd, off64_t size) {
    REAL(ftruncate64);
    return truncate_fails(fd) ? (int)failed(ENOSPC) : real(fd, size);
}

static int opened(int fd, enum file file) {
    if (fd >= 0 && fd < MAX_FDS) {
        atomic_store(&after_short[fd], 0);
        atomic_store_explicit(&files[fd], file, memory_order_relaxed);
    }
    return fd;
}

static int open_error(void) {
    static const int errors[] = {EIO, EMFILE, EACCES};
    return errors[random_number() % 3];
}

#define OPEN_WITH(name) \
    REAL(name); \
    va_list more; \
    va_start(more, flags); \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
    va_end(more); \
    enum file file = file_at(path); \
    if (file != OTHER && fails(OPEN)) return (int)failed(open_error()); \
    return opened(real(path, flags, mode), file)

int open(const char *path, int flags, ...) {
    OPEN_WITH(open);
}

int open64(const char *path, int flags, ...) {
    OPEN_WITH(open64);
}

int close(int fd) {
    REAL(close);
    /* Before the number can be another thread's. */
    opened(fd, OTHER);
    return real(fd);
}

static int lock_fails(int fd, int command, void *argument) {
    if (file_of(fd) == OTHER || (command != F_SETLK && command != F_SETLKW)) return 0;
    return ((struct flock *)argument)->l_type != F_UNLCK && fails(LOCK);
}

#define FCNTL_WITH(name) \
    REAL(name); \
    va_list more; \
    va_start(more, command); \
    void *argument = va_arg(more, void *); \
    va_end(more); \
    if (lock_fails(fd, command, argument)) return (int)failed(random_number() % 2 ? EIO : ENOLCK); \
    return real(fd, command, argument)

int fcntl(int fd, int command, ...) {
    FCNTL_WITH(fcntl);
}

int fcntl64(int fd, int command, ...) {
    FCNTL_WITH(fcntl64);
}
