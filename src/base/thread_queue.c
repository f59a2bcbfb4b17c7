#include "base/thread.h"

#include "base/mem.h"

/* Jobs in the order in which they were added. */
typedef struct job_list {
    thread_job *first, **end;
} job_list;

struct thread_queue {
    pthread_mutex_t lock;
    pthread_cond_t more, done; /* a job was added or `stop` set; a job was done */
    job_list waiting, finished;
    size_t running;
    bool stop;
    void (*run)(thread_job *job);
    int n_started;
    pthread_t threads[];
};

static void push_job(job_list *l, thread_job *job)
{
    job->next = NULL;
    *l->end = job;
    l->end = &job->next;
}

static thread_job *get(job_list *l)
{
    thread_job *job = l->first;
    if (job && !(l->first = job->next))
        l->end = &l->first;
    return job;
}

static void *run_jobs(void *arg)
{
    thread_queue *q = arg;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!q->stop && !q->waiting.first)
            pthread_cond_wait(&q->more, &q->lock);
        if (q->stop)
            break;
        thread_job *job = get(&q->waiting);
        q->running++;
        pthread_mutex_unlock(&q->lock);
        q->run(job);
        pthread_mutex_lock(&q->lock);
        q->running--;
        push_job(&q->finished, job);
        pthread_cond_signal(&q->done);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static void ignore_job(thread_job *job)
{
    (void)job;
}

pesc_status thread_queue_open(thread_queue **out, int n_threads, void (*run)(thread_job *job))
{
    ASSERT(n_threads > 0);
    *out = NULL;
    thread_queue *q = mem_zalloc(1, sizeof *q + (size_t)n_threads * sizeof *q->threads);
    if (!q)
        return fail_nomem("a queue of jobs", sizeof *q);
    q->run = run;
    q->waiting.end = &q->waiting.first;
    q->finished.end = &q->finished.first;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->more, NULL);
    pthread_cond_init(&q->done, NULL);
    for (; q->n_started < n_threads; q->n_started++) {
        int err = thread_start(&q->threads[q->n_started], run_jobs, q);
        if (err) {
            thread_queue_close(q, ignore_job);
            return fail_errno(PESC_NOMEM, err, "cannot start a thread");
        }
    }
    *out = q;
    return PESC_OK;
}

void thread_queue_close(thread_queue *q, void (*drop)(thread_job *job))
{
    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_broadcast(&q->more);
    pthread_mutex_unlock(&q->lock);
    for (int i = 0; i < q->n_started; i++)
        pthread_join(q->threads[i], NULL);
    for (thread_job *job; (job = get(&q->waiting)) || (job = get(&q->finished));)
        drop(job);
    pthread_cond_destroy(&q->done);
    pthread_cond_destroy(&q->more);
    pthread_mutex_destroy(&q->lock);
    mem_free(q);
}

void thread_queue_add(thread_queue *q, thread_job *job)
{
    pthread_mutex_lock(&q->lock);
    push_job(&q->waiting, job);
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->lock);
}

thread_job *thread_queue_take(thread_queue *q, bool wait)
{
    pthread_mutex_lock(&q->lock);
    while (wait && !q->finished.first && (q->waiting.first || q->running))
        pthread_cond_wait(&q->done, &q->lock);
    thread_job *job = get(&q->finished);
    pthread_mutex_unlock(&q->lock);
    return job;
}
