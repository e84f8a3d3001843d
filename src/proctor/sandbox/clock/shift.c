/* Moves the calendar ahead for every program that loads this library, and for nothing else.
 *
 * Time namespaces move only the clocks that count from boot, so the calendar is moved where programs ask for
 * it: in the C library. Nothing here needs a particular C library: it is linked against none, asks the kernel
 * itself, and takes from whatever library is loaded only what is named weak below. File times are moved
 * both ways, so that a file made now is as old inside as it is outside; deadlines that a program worked out
 * from the moved calendar are moved back before anyone waits for them.
 *
 * Programs that are linked statically or ask the kernel themselves keep the real time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#ifndef SHIFT_S
#define SHIFT_S 34560000L /* 400 days */
#endif
#define TEN_YEARS_S 315360000L
#define EXPORT __attribute__((visibility("default")))

extern int pthread_cond_clockwait(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *)
    __attribute__((weak));
extern int pthread_mutex_clocklock(pthread_mutex_t *, clockid_t, const struct timespec *) __attribute__((weak));
extern int sem_clockwait(sem_t *, clockid_t, const struct timespec *) __attribute__((weak));

static int is_calendar(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_REALTIME_ALARM ||
           clock == CLOCK_TAI;
}

static struct timespec real_now(void) {
    struct timespec now = {0, 0};
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    return now;
}

/* Asking for the time. */

EXPORT int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && is_calendar(clock)) now->tv_sec += SHIFT_S;
    return failed;
}

EXPORT time_t time(time_t *kept) {
    time_t now = real_now().tv_sec + SHIFT_S;
    if (kept) *kept = now;
    return now;
}

EXPORT int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found = real_now();
    if (zone) *(struct timezone *)zone = (struct timezone){0, 0};
    if (now) {
        now->tv_sec = found.tv_sec + SHIFT_S;
        now->tv_usec = found.tv_nsec / 1000;
    }
    return 0;
}

EXPORT int timespec_get(struct timespec *now, int base) {
    if (base != TIME_UTC) return 0;
    *now = real_now();
    now->tv_sec += SHIFT_S;
    return base;
}

/* Waiting until a time. */

static struct timespec moved_back(const struct timespec *deadline) {
    struct timespec real = *deadline;
    if (real.tv_sec > real_now().tv_sec + SHIFT_S / 2) real.tv_sec -= SHIFT_S;
    return real;
}

/* The clock of a condition is its own secret; a time since boot is decades before the calendar. */
static clockid_t clock_of(const struct timespec *deadline) {
    return deadline->tv_sec < real_now().tv_sec - TEN_YEARS_S ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

static int is_past(clockid_t clock, const struct timespec *deadline) {
    struct timespec now = {0, 0};
    syscall(SYS_clock_gettime, clock, &now);
    return now.tv_sec > deadline->tv_sec || (now.tv_sec == deadline->tv_sec && now.tv_nsec >= deadline->tv_nsec);
}

static void doze(void) {
    struct timespec short_while = {0, 1000000};
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &short_while, NULL);
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted, struct timespec *left) {
    struct timespec real = *wanted;
    int before = errno, failed = 0;
    if ((flags & TIMER_ABSTIME) && is_calendar(clock)) real = moved_back(wanted);
    if (syscall(SYS_clock_nanosleep, clock, flags, &real, left)) failed = errno;
    errno = before;
    return failed;
}

EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                                  const struct timespec *restrict deadline) {
    struct timespec real = moved_back(deadline);
    clockid_t clock = clock_of(&real);
    if (pthread_cond_clockwait) return pthread_cond_clockwait(condition, mutex, clock, &real);
    if (is_past(clock, &real)) return ETIMEDOUT;
    pthread_mutex_unlock(mutex); /* waking for no reason is allowed, and every caller must look again */
    doze();
    return pthread_mutex_lock(mutex);
}

EXPORT int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict deadline) {
    struct timespec real = moved_back(deadline);
    if (pthread_mutex_clocklock) return pthread_mutex_clocklock(mutex, CLOCK_REALTIME, &real);
    for (;;) {
        int failed = pthread_mutex_trylock(mutex);
        if (failed != EBUSY) return failed;
        if (is_past(CLOCK_REALTIME, &real)) return ETIMEDOUT;
        doze();
    }
}

EXPORT int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict deadline) {
    struct timespec real = moved_back(deadline);
    if (sem_clockwait) return sem_clockwait(semaphore, CLOCK_REALTIME, &real);
    for (;;) {
        if (!sem_trywait(semaphore)) return 0;
        if (errno != EAGAIN) return -1;
        if (is_past(CLOCK_REALTIME, &real)) {
            errno = ETIMEDOUT;
            return -1;
        }
        doze();
    }
}

/* The times of files, out. */

static int stated(int folder, const char *path, struct stat *found, int flags) {
    int failed = (int)syscall(SYS_newfstatat, folder, path, found, flags);
    if (!failed) {
        found->st_atim.tv_sec += SHIFT_S;
        found->st_mtim.tv_sec += SHIFT_S;
        found->st_ctim.tv_sec += SHIFT_S;
    }
    return failed;
}

EXPORT int fstatat(int folder, const char *restrict path, struct stat *restrict found, int flags) {
    return stated(folder, path, found, flags);
}
EXPORT int stat(const char *restrict path, struct stat *restrict found) {
    return stated(AT_FDCWD, path, found, 0);
}
EXPORT int lstat(const char *restrict path, struct stat *restrict found) {
    return stated(AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW);
}
EXPORT int fstat(int file, struct stat *found) { return stated(file, "", found, AT_EMPTY_PATH); }

/* struct stat64 is struct stat on every machine with 64 bits; the names with underscores are those that
 * programs built against older C libraries call. */
#define ALSO(name, parameters, call) \
    EXPORT int name parameters;      \
    EXPORT int name parameters { return call; }
ALSO(fstatat64, (int folder, const char *path, struct stat64 *found, int flags),
     stated(folder, path, (struct stat *)found, flags))
ALSO(stat64, (const char *path, struct stat64 *found), stated(AT_FDCWD, path, (struct stat *)found, 0))
ALSO(lstat64, (const char *path, struct stat64 *found),
     stated(AT_FDCWD, path, (struct stat *)found, AT_SYMLINK_NOFOLLOW))
ALSO(fstat64, (int file, struct stat64 *found), stated(file, "", (struct stat *)found, AT_EMPTY_PATH))
ALSO(__xstat, (int version, const char *path, struct stat *found), ((void)version, stated(AT_FDCWD, path, found, 0)))
ALSO(__lxstat, (int version, const char *path, struct stat *found),
     ((void)version, stated(AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW)))
ALSO(__fxstat, (int version, int file, struct stat *found),
     ((void)version, stated(file, "", found, AT_EMPTY_PATH)))
ALSO(__fxstatat, (int version, int folder, const char *path, struct stat *found, int flags),
     ((void)version, stated(folder, path, found, flags)))
ALSO(__xstat64, (int version, const char *path, struct stat64 *found),
     ((void)version, stated(AT_FDCWD, path, (struct stat *)found, 0)))
ALSO(__lxstat64, (int version, const char *path, struct stat64 *found),
     ((void)version, stated(AT_FDCWD, path, (struct stat *)found, AT_SYMLINK_NOFOLLOW)))
ALSO(__fxstat64, (int version, int file, struct stat64 *found),
     ((void)version, stated(file, "", (struct stat *)found, AT_EMPTY_PATH)))
ALSO(__fxstatat64, (int version, int folder, const char *path, struct stat64 *found, int flags),
     ((void)version, stated(folder, path, (struct stat *)found, flags)))

EXPORT int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict found) {
    int failed = (int)syscall(SYS_statx, folder, path, flags, mask, found);
    if (!failed) {
        found->stx_atime.tv_sec += SHIFT_S;
        found->stx_btime.tv_sec += SHIFT_S;
        found->stx_ctime.tv_sec += SHIFT_S;
        found->stx_mtime.tv_sec += SHIFT_S;
    }
    return failed;
}

/* The times of files, in. */

static int touched(int folder, const char *path, const struct timespec times[2], int flags) {
    struct timespec real[2];
    if (!times) return (int)syscall(SYS_utimensat, folder, path, NULL, flags);
    for (int at = 0; at < 2; at++) {
        real[at] = times[at];
        if (real[at].tv_nsec != UTIME_NOW && real[at].tv_nsec != UTIME_OMIT) real[at].tv_sec -= SHIFT_S;
    }
    return (int)syscall(SYS_utimensat, folder, path, real, flags);
}

static int touched_coarsely(int folder, const char *path, const struct timeval times[2], int flags) {
    struct timespec fine[2];
    if (!times) return touched(folder, path, NULL, flags);
    for (int at = 0; at < 2; at++) {
        fine[at].tv_sec = times[at].tv_sec;
        fine[at].tv_nsec = times[at].tv_usec * 1000;
    }
    return touched(folder, path, fine, flags);
}

EXPORT int utimensat(int folder, const char *path, const struct timespec times[2], int flags) {
    return touched(folder, path, times, flags);
}
EXPORT int futimens(int file, const struct timespec times[2]) { return touched(file, NULL, times, 0); }
EXPORT int utimes(const char *path, const struct timeval times[2]) {
    return touched_coarsely(AT_FDCWD, path, times, 0);
}
EXPORT int lutimes(const char *path, const struct timeval times[2]) {
    return touched_coarsely(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
}
EXPORT int futimes(int file, const struct timeval times[2]) { return touched_coarsely(file, NULL, times, 0); }
EXPORT int futimesat(int folder, const char *path, const struct timeval times[2]) {
    return touched_coarsely(folder, path, times, 0);
}
EXPORT int utime(const char *path, const struct utimbuf *times) {
    struct timespec fine[2];
    if (!times) return touched(AT_FDCWD, path, NULL, 0);
    fine[0] = (struct timespec){times->actime, 0};
    fine[1] = (struct timespec){times->modtime, 0};
    return touched(AT_FDCWD, path, fine, 0);
}
