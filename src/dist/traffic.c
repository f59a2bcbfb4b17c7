#include "dist/traffic.h"

#include "base/mem.h"
#include "base/thread.h"

#include <stdio.h>

enum { WAITING = 64 };

typedef struct job {
    traffic_fn fn;
    void *ctx;
    int64_t i;
} job;

struct traffic {
    device *side;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    job jobs[WAITING]; /* job n is in place n % WAITING */
    int64_t added, done;
    bool started, stop;
    pesc_status failed;
    char message[1024];
};

/* Runs the next job with the lock released. */
static void run_one(traffic *t)
{
    job j = t->jobs[t->done % WAITING];
    bool skip = t->failed != PESC_OK;
    pthread_mutex_unlock(&t->lock);
    pesc_status s = skip ? PESC_OK : j.fn(j.ctx, j.i);
    pthread_mutex_lock(&t->lock);
    if (s != PESC_OK) {
        t->failed = s;
        snprintf(t->message, sizeof t->message, "%s", pesc_last_error());
    }
    t->done++;
    pthread_cond_broadcast(&t->changed);
}

static void *exchange_thread(void *arg)
{
    traffic *t = arg;
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        if (t->done < t->added)
            run_one(t);
        else
            pthread_cond_wait(&t->changed, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static pesc_status start(traffic *t, device *dev)
{
    TRY(dev->op->open_side(dev, &t->side));
    int err = thread_start(&t->thread, exchange_thread, t);
    t->started = err == 0;
    return err ? fail_errno(PESC_NOMEM, err, "cannot start a thread") : PESC_OK;
}

pesc_status traffic_open(traffic **out, device *dev)
{
    *out = NULL;
    traffic *t = mem_zalloc(1, sizeof *t);
    if (!t)
        return fail_nomem("exchanges between processes", sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    pesc_status s = start(t, dev);
    if (s == PESC_OK)
        *out = t;
    else
        traffic_close(t);
    return s;
}

void traffic_close(traffic *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    if (t->started)
        pthread_join(t->thread, NULL);
    if (t->side)
        t->side->op->close(t->side);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

device *traffic_device(traffic *t)
{
    return t->side;
}

int64_t traffic_add(traffic *t, traffic_fn fn, void *ctx, int64_t i)
{
    pthread_mutex_lock(&t->lock);
    while (t->added - t->done == WAITING)
        pthread_cond_wait(&t->changed, &t->lock);
    int64_t number = t->added++;
    t->jobs[number % WAITING] = (job){ fn, ctx, i };
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return number;
}

pesc_status traffic_wait(traffic *t, int64_t number)
{
    pthread_mutex_lock(&t->lock);
    while (t->done <= number)
        pthread_cond_wait(&t->changed, &t->lock);
    pesc_status s = t->failed == PESC_OK ? PESC_OK : fail(t->failed, "%s", t->message);
    pthread_mutex_unlock(&t->lock);
    return s;
}
