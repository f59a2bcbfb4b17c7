/* prometheus: counters, gauges and histograms in the text format of Prometheus, version 0.0.4. */
#ifndef PESC_SERVE_PROMETHEUS_H
#define PESC_SERVE_PROMETHEUS_H

#include "serve/apierror.h"

enum { METRICS_BUCKETS = 16, METRICS_ENDPOINTS = 16 };

typedef struct histogram {
    uint64_t count[METRICS_BUCKETS + 1]; /* the last: above all bounds */
    double sum;
    uint64_t n;
} histogram;

typedef struct metrics {
    uint64_t requests[METRICS_ENDPOINTS][N_STATUSES];
    uint64_t prompt_tokens, cached_tokens, generated_tokens, disconnects;
    uint64_t forwards, computed_tokens;
    histogram first_token, inter_token, request, queue; /* seconds */
} metrics;

typedef struct metrics_now {
    int32_t running, waiting, pages, pages_used;
} metrics_now;

void prometheus_observe(histogram *h, double seconds);
/* endpoint: an index into the names below. */
void prometheus_count(metrics *m, int endpoint, int status);

/* names: of the endpoints, [n]. vllm_model: repeats figures under vLLM's names, with this model as
 * their label; NULL: does not. */
void prometheus_text(const metrics *m, const metrics_now *now, const char *const *names, size_t n,
                     const char *vllm_model, str *out);

#endif
