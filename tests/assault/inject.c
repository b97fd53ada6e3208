/* Faults for a real process: preloaded, it stands between a program and the C library.
 *
 *     program ── pwrite, fdatasync, open, rename, pthread_create … ──► a rule for this call? ── no ──► the C library
 *                                                                          └─ yes ──► fail, stall, half done, kill
 *     program ── clock_gettime(CLOCK_REALTIME) ──► the C library ──► plus the step that was asked for
 *
 * Rules live in a file that the driver and the program both map (`injector.py` has the same layout), so they change while the
 * program runs. A rule names an operation, a part of a path, how many calls pass before it acts, and how often it acts.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum operation { WRITE = 1, SYNC, OPEN, RENAME, ALLOCATE, THREAD };
enum action { FAIL = 1, STALL, HALF, SHORT, KILL, HALF_KILL };

struct rule {
    int64_t operation, action, argument; /* argument: an errno, or milliseconds */
    int64_t skip, times;                 /* both count down; times < 0: always */
    int64_t hits;
    char path[80];
};

#define RULES 8
#define XFS_MAGIC 0x58465342
#define BTRFS_MAGIC 0x9123683E
struct control {
    int64_t clock_step_ms;
    struct rule rules[RULES];
};

static struct control *control;

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("ASSAULT_CONTROL");
    int (*real_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int file = path == NULL ? -1 : real_open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) control = mapped;
}

/* The rule that acts on this call; NULL when none does. `path` is NULL where only `file` is known. It is a copy: while a call is
 * stalled, the driver may use the rule for another fault. */
static struct rule *rule_for(enum operation operation, const char *path, int file) {
    static __thread struct rule acting;
    char link[32], found[512];
    if (control == NULL) return NULL;
    for (int index = 0; index < RULES; index++) {
        struct rule *rule = &control->rules[index];
        if (rule->operation != operation || rule->times == 0) continue;
        acting = *rule;
        if (rule->path[0] != 0) {
            if (path == NULL) {
                snprintf(link, sizeof link, "/proc/self/fd/%d", file);
                ssize_t size = readlink(link, found, sizeof found - 1);
                found[size < 0 ? 0 : size] = 0;
                path = found;
            }
            if (strstr(path, rule->path) == NULL) continue;
        }
        if (__atomic_fetch_sub(&rule->skip, 1, __ATOMIC_SEQ_CST) > 0) continue;
        if (rule->times > 0 && __atomic_fetch_sub(&rule->times, 1, __ATOMIC_SEQ_CST) <= 0) continue;
        __atomic_fetch_add(&rule->hits, 1, __ATOMIC_SEQ_CST);
        return &acting;
    }
    return NULL;
}

/* Whether a rule would stall a write to this file. It is not counted. */
static int would_stall(int file) {
    char link[32], found[512];
    if (control == NULL) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, found, sizeof found - 1);
    found[size < 0 ? 0 : size] = 0;
    for (int index = 0; index < RULES; index++) {
        struct rule *rule = &control->rules[index];
        int acts = rule->operation == WRITE && rule->action == STALL && rule->times != 0 && rule->skip <= 0;
        if (acts && strstr(found, rule->path) != NULL) return 1;
    }
    return 0;
}

static void stall(int64_t milliseconds) {
    struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {}
}

/* Whether the call is over; its errno is set then. A stalled call goes on afterwards. */
static int is_over(struct rule *rule) {
    if (rule == NULL) return 0;
    if (rule->action == KILL) kill(getpid(), SIGKILL);
    if (rule->action == STALL) stall(rule->argument);
    if (rule->action != FAIL) return 0;
    errno = (int)rule->argument;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* What a rule makes of a write of `size` bytes: how many are written really, and whether the call then fails. */
static size_t kept_part(struct rule *rule, size_t size) {
    int in_part = rule != NULL && rule->action >= HALF && rule->action != KILL;
    return in_part ? size / 2 : size;
}

static ssize_t after_write(struct rule *rule, ssize_t written) {
    if (rule == NULL) return written;
    if (rule->action == HALF_KILL) kill(getpid(), SIGKILL);
    if (rule->action != HALF) return written;
    errno = (int)rule->argument;
    return -1;
}

#define PWRITE(name, offset_type)                                                          \
    ssize_t name(int file, const void *data, size_t size, offset_type offset) {            \
        struct rule *rule = rule_for(WRITE, NULL, file);                                   \
        if (is_over(rule)) return -1;                                                      \
        return after_write(rule, REAL(name)(file, data, kept_part(rule, size), offset));   \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define PWRITEV(name, offset_type)                                                         \
    ssize_t name(int file, const struct iovec *pieces, int count, offset_type offset) {    \
        struct rule *rule = rule_for(WRITE, NULL, file);                                   \
        if (is_over(rule)) return -1;                                                      \
        int kept = (int)kept_part(rule, (size_t)count);                                    \
        return after_write(rule, REAL(name)(file, pieces, kept > 0 ? kept : 1, offset));   \
    }
PWRITEV(pwritev, off_t)
PWRITEV(pwritev64, off64_t)

/* A write that may not wait fails where it would be stalled. File systems that cannot tell refuse it as ever. */
static int can_tell(int file) {
    struct statfs found;
    return fstatfs(file, &found) == 0 && (found.f_type == XFS_MAGIC || found.f_type == BTRFS_MAGIC);
}

#define PWRITEV2(name, offset_type)                                                                \
    ssize_t name(int file, const struct iovec *pieces, int count, offset_type offset, int flags) { \
        if (flags & RWF_NOWAIT && !can_tell(file)) return REAL(name)(file, pieces, count, offset, flags); \
        if (flags & RWF_NOWAIT && would_stall(file)) {                                             \
            errno = EAGAIN;                                                                        \
            return -1;                                                                             \
        }                                                                                          \
        struct rule *rule = rule_for(WRITE, NULL, file);                                           \
        if (is_over(rule)) return -1;                                                              \
        int kept = (int)kept_part(rule, (size_t)count);                                            \
        return after_write(rule, REAL(name)(file, pieces, kept > 0 ? kept : 1, offset, flags));    \
    }
PWRITEV2(pwritev2, off_t)
PWRITEV2(pwritev64v2, off64_t)

#define SYNCS(name)                                                                        \
    int name(int file) {                                                                   \
        return is_over(rule_for(SYNC, NULL, file)) ? -1 : REAL(name)(file);                \
    }
SYNCS(fsync)
SYNCS(fdatasync)

#define OPENS(name)                                                                        \
    int name(const char *path, int flags, ...) {                                           \
        va_list rest;                                                                      \
        va_start(rest, flags);                                                             \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;            \
        va_end(rest);                                                                      \
        return is_over(rule_for(OPEN, path, -1)) ? -1 : REAL(name)(path, flags, mode);     \
    }
OPENS(open)
OPENS(open64)

int rename(const char *from, const char *to) {
    return is_over(rule_for(RENAME, to, -1)) ? -1 : REAL(rename)(from, to);
}

#define ALLOCATES(name, offset_type)                                                       \
    int name(int file, offset_type offset, offset_type size) {                             \
        struct rule *rule = rule_for(ALLOCATE, NULL, file);                                \
        return is_over(rule) ? errno : REAL(name)(file, offset, size);                     \
    }
ALLOCATES(posix_fallocate, off_t)
ALLOCATES(posix_fallocate64, off64_t)

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    struct rule *rule = rule_for(THREAD, NULL, -1);
    return is_over(rule) ? errno : REAL(pthread_create)(thread, attributes, run, argument);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int outcome = REAL(clock_gettime)(clock, now);
    if (control == NULL || outcome != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return outcome;
    int64_t ns = now->tv_nsec + control->clock_step_ms % 1000 * 1000000;
    now->tv_sec += control->clock_step_ms / 1000 + (ns >= 1000000000) - (ns < 0);
    now->tv_nsec = (ns + 1000000000) % 1000000000;
    return outcome;
}
