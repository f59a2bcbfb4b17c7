/* clock: the time in seconds. */
#ifndef PESC_BASE_CLOCK_H
#define PESC_BASE_CLOCK_H

#include <time.h>

static inline double clock_read(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Since an arbitrary moment; never goes back. The difference of two readings is a duration. */
static inline double clock_seconds(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

/* Since 1970-01-01 00:00 UTC. */
static inline double clock_wall(void)
{
    return clock_read(CLOCK_REALTIME);
}

#endif
