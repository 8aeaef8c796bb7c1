/* The wall clock of a program that is not ours, as a page of memory says; preloaded by the linker (clusters/systems/clocks.py).
 *
 * It takes the calls of the C library that read the wall clock, or wait until a moment of it. The page is that of replog's own nodes
 * (replog/host/sabotage/control_page.py): the harness writes by how much the clock is wrong, and this half notes what it answers: that is the proof.
 * The monotonic clock stays right, as when a clock is set by hand or by NTP. Programs without the C library (static ones, Go) are not reached.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES 4096
enum { NUMBER = 0, OFFSET_MS = 8, DRIFT_PPM = 16, SINCE_NS = 40, SEEN = 1024, REAL_NS = 1032, LOCAL_NS = 1040, WALL_MS = 1048, HELD_NS = 2048 };
static const int64_t NS = 1000000000, NS_PER_MS = 1000000, NOTE_EVERY_NS = 20000000;
static const int64_t MILLION = 1000000;
static const double THIRTY_YEARS_NS = 1e18;
static const int64_t NEVER_S = 6000000000; /* in 2160; who waits for ever names the last moment that there is */
static const int64_t YEARS_S = 1000000000; /* no machine is up for thirty years: a moment beyond is one of the wall clock */

static char *page;
static int64_t noted_ns, noted_number;

static int64_t at(int place) { return __atomic_load_n((int64_t *)(page + place), __ATOMIC_ACQUIRE); }
static void put(int place, int64_t value) { __atomic_store_n((int64_t *)(page + place), value, __ATOMIC_RELEASE); }

static void *next(const char *name)
{
    void *found = NULL;
#ifdef __GLIBC__
    found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2"); /* of pthread_cond_* there is an older one, of another size */
#endif
    return found ? found : dlsym(RTLD_NEXT, name);
}

static int (*own_gettime)(clockid_t, struct timespec *);

static int64_t read_ns(clockid_t clock)
{
    struct timespec now = {0, 0};
    if (own_gettime)
        own_gettime(clock, &now);
    else /* some library asks before this one has begun */
        syscall(SYS_clock_gettime, clock, &now);
    return now.tv_sec * NS + now.tv_nsec;
}

__attribute__((constructor)) static void begin(void)
{
    own_gettime = next("clock_gettime");
    const char *path = getenv("TRIBUNAL_CLOCK_PAGE");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        page = mapped;
}

/* By how much the wall clock is ahead; *number: of what was asked for then, *drift_ppm: by how much it goes too fast. */
static int64_t ahead_ns(int64_t *number, int64_t *drift_ppm)
{
    int64_t offset_ms, since_ns;
    do {
        *number = at(NUMBER);
        offset_ms = at(OFFSET_MS), *drift_ppm = at(DRIFT_PPM), since_ns = at(SINCE_NS);
    } while (*number != at(NUMBER));
    int64_t elapsed_ns = *drift_ppm ? read_ns(CLOCK_MONOTONIC) - since_ns : 0;
    return offset_ms * NS_PER_MS + elapsed_ns / 1000 * *drift_ppm / 1000;
}

/* Several threads and processes note in one page: whoever is ended in its midst holds nobody up for long. */
static void note(int64_t number, int64_t real_ns, int64_t wall_ns)
{
    int64_t held_ns = at(HELD_NS);
    if (held_ns && real_ns - held_ns < NS)
        return;
    if (!__atomic_compare_exchange_n((int64_t *)(page + HELD_NS), &held_ns, real_ns, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return;
    put(REAL_NS, real_ns);
    put(LOCAL_NS, wall_ns);
    put(WALL_MS, wall_ns / NS_PER_MS);
    put(SEEN, number);
    __atomic_store_n(&noted_ns, real_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&noted_number, number, __ATOMIC_RELAXED);
    put(HELD_NS, 0);
}

/* Return the wall clock as this program is to see it. */
static int64_t seen_ns(clockid_t clock)
{
    if (!page)
        return read_ns(clock);
    int64_t number, drift_ppm, ahead = ahead_ns(&number, &drift_ppm), real_ns = read_ns(CLOCK_MONOTONIC), wall_ns = read_ns(clock) + ahead;
    if (number != __atomic_load_n(&noted_number, __ATOMIC_RELAXED) ||
        real_ns - __atomic_load_n(&noted_ns, __ATOMIC_RELAXED) >= NOTE_EVERY_NS)
        note(number, real_ns, wall_ns);
    return wall_ns;
}

static struct timespec as_timespec(int64_t ns)
{
    struct timespec result = {ns / NS, ns % NS};
    if (result.tv_nsec < 0)
        result.tv_sec--, result.tv_nsec += NS;
    return result;
}

/* How long the machine's clock takes for what this program's takes so long for; one that stands still, or goes back, never comes there. */
static int64_t at_pace(int64_t duration_ns, int64_t drift_ppm)
{
    double machine_ns = drift_ppm > -MILLION ? (double)duration_ns * MILLION / (double)(MILLION + drift_ppm) : THIRTY_YEARS_NS;
    return machine_ns < THIRTY_YEARS_NS ? (int64_t)machine_ns : (int64_t)THIRTY_YEARS_NS;
}

/* Return a moment of this program's wall clock as one of the machine's; of another clock, or one that is never meant to come, as it is. */
static const struct timespec *moment(const struct timespec *given, struct timespec *room)
{
    if (!page || !given || given->tv_sec < YEARS_S || given->tv_sec >= NEVER_S || given->tv_nsec < 0 || given->tv_nsec >= NS)
        return given;
    int64_t number, drift_ppm, ahead = ahead_ns(&number, &drift_ppm), given_ns = given->tv_sec * NS + given->tv_nsec;
    int64_t now_ns = drift_ppm ? read_ns(CLOCK_REALTIME) : 0, left_ns = given_ns - ahead - now_ns;
    if (drift_ppm && left_ns > 0)
        left_ns = at_pace(left_ns, drift_ppm);
    *room = as_timespec(now_ns + left_ns);
    return room;
}

static int is_wall(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI; }

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!is_wall(clock))
        return own_gettime ? own_gettime(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
    *now = as_timespec(seen_ns(clock));
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    (void)zone;
    struct timespec read = as_timespec(seen_ns(CLOCK_REALTIME));
    now->tv_sec = read.tv_sec, now->tv_usec = read.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    time_t read = as_timespec(seen_ns(CLOCK_REALTIME)).tv_sec;
    if (now)
        *now = read;
    return read;
}

int timespec_get(struct timespec *now, int base)
{
    if (base != TIME_UTC)
        return 0;
    *now = as_timespec(seen_ns(CLOCK_REALTIME));
    return base;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    static int (*own)(clockid_t, int, const struct timespec *, struct timespec *);
    struct timespec room;
    if (!own)
        own = next("clock_nanosleep");
    return own(clock, flags, is_wall(clock) && (flags & TIMER_ABSTIME) ? moment(until, &room) : until, left);
}

#define WAITS(result, name, parameters, arguments)     \
    result name parameters                              \
    {                                                   \
        static result(*own) parameters;                 \
        struct timespec room;                           \
        if (!own)                                       \
            own = next(#name);                          \
        return own arguments;                           \
    }

WAITS(int, pthread_cond_timedwait, (pthread_cond_t *restrict one, pthread_mutex_t *restrict lock, const struct timespec *restrict until), (one, lock, moment(until, &room)))
WAITS(int, pthread_cond_clockwait, (pthread_cond_t *restrict one, pthread_mutex_t *restrict lock, clockid_t clock, const struct timespec *restrict until), (one, lock, clock, moment(until, &room)))
WAITS(int, pthread_mutex_timedlock, (pthread_mutex_t *restrict one, const struct timespec *restrict until), (one, moment(until, &room)))
WAITS(int, pthread_rwlock_timedrdlock, (pthread_rwlock_t *restrict one, const struct timespec *restrict until), (one, moment(until, &room)))
WAITS(int, pthread_rwlock_timedwrlock, (pthread_rwlock_t *restrict one, const struct timespec *restrict until), (one, moment(until, &room)))
WAITS(int, sem_timedwait, (sem_t *restrict one, const struct timespec *restrict until), (one, moment(until, &room)))
WAITS(int, sem_clockwait, (sem_t *restrict one, clockid_t clock, const struct timespec *restrict until), (one, clock, moment(until, &room)))
