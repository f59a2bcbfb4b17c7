#include "serve/prometheus.h"

#include <stddef.h>

static const double bounds[METRICS_BUCKETS] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                0.5,   1,      2.5,   5,    10,    30,   60,  300 };

void prometheus_observe(histogram *h, double seconds)
{
    int i = 0;
    while (i < METRICS_BUCKETS && seconds > bounds[i])
        i++;
    h->count[i]++;
    h->sum += seconds;
    h->n++;
}

void prometheus_count(metrics *m, int endpoint, int status)
{
    m->requests[endpoint][http_status_of(status) - http_statuses]++;
}

static void head(str *out, const char *name, const char *type, const char *help)
{
    str_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_label(str *out, const char *name, const char *value)
{
    str_printf(out, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            str_putc(out, '\\');
        str_putc(out, *value);
    }
    str_putc(out, '"');
}

/* label: `name="value"`, or "" for none. */
static void put_histogram(str *out, const char *name, const char *help, const char *label,
                          const histogram *h)
{
    uint64_t below = 0;
    const char *comma = *label ? "," : "";
    head(out, name, "histogram", help);
    for (int i = 0; i < METRICS_BUCKETS; i++) {
        below += h->count[i];
        str_printf(out, "%s_bucket{%s%sle=\"%g\"} %llu\n", name, label, comma, bounds[i],
                   (unsigned long long)below);
    }
    const char *open = *label ? "{" : "", *close = *label ? "}" : "";
    str_printf(out, "%s_bucket{%s%sle=\"+Inf\"} %llu\n%s_sum%s%s%s %.9g\n%s_count%s%s%s %llu\n",
               name, label, comma, (unsigned long long)h->n, name, open, label, close, h->sum, name,
               open, label, close, (unsigned long long)h->n);
}

/* A figure under its own name and, if asked for, under vLLM's. */
typedef struct figure {
    const char *name, *vllm, *type, *help;
    double value;
} figure;

/* vllm: its label; NULL: it is not asked for. */
static void put_figures(str *out, const metrics *m, const metrics_now *now, const char *vllm)
{
    double usage = now->pages ? (double)now->pages_used / now->pages : 0;
    const figure rows[] = {
        { "pesc_requests_running", "vllm:num_requests_running", "gauge",
          "Generations that have a slot.", now->running },
        { "pesc_requests_waiting", "vllm:num_requests_waiting", "gauge",
          "Generations that wait for a slot.", now->waiting },
        { "pesc_prompt_tokens_total", "vllm:prefix_cache_queries_total", "counter",
          "Tokens of prompts.", (double)m->prompt_tokens },
        { NULL, "vllm:prompt_tokens_total", "counter", "Tokens of prompts.",
          (double)m->prompt_tokens },
        { "pesc_prompt_tokens_cached_total", "vllm:prefix_cache_hits_total", "counter",
          "Tokens of prompts that were in the prefix cache.", (double)m->cached_tokens },
        { "pesc_generation_tokens_total", "vllm:generation_tokens_total", "counter",
          "Tokens generated.", (double)m->generated_tokens },
        { "pesc_forwards_total", NULL, "counter", "Forwards of the model.", (double)m->forwards },
        { "pesc_forward_tokens_total", NULL, "counter",
          "Tokens that forwards computed, of prompts and generated.", (double)m->computed_tokens },
        { "pesc_disconnects_total", NULL, "counter", "Clients that left before their answer ended.",
          (double)m->disconnects },
        { "pesc_kv_pages_used", NULL, "gauge", "Pages of the KV cache in use by generations.",
          now->pages_used },
        { "pesc_kv_pages", NULL, "gauge", "Pages of the KV cache.", now->pages },
        { NULL, "vllm:kv_cache_usage_perc", "gauge", "Fraction of the KV cache in use.", usage },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const figure *f = &rows[i];
        if (f->name) {
            head(out, f->name, f->type, f->help);
            str_printf(out, "%s %.15g\n", f->name, f->value);
        }
        if (f->vllm && vllm) {
            head(out, f->vllm, f->type, f->help);
            str_printf(out, "%s{%s} %.15g\n", f->vllm, vllm, f->value);
        }
    }
}

void prometheus_text(const metrics *m, const metrics_now *now, const char *const *names, size_t n,
                     const char *vllm_model, str *out)
{
    const struct {
        const char *name, *vllm, *help;
        const histogram *h;
    } times[] = {
        { "pesc_time_to_first_token_seconds", "vllm:time_to_first_token_seconds",
          "From the request to its first token.", &m->first_token },
        { "pesc_inter_token_latency_seconds", "vllm:inter_token_latency_seconds",
          "From one token of an answer to the next.", &m->inter_token },
        { "pesc_e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds",
          "From the request to the end of its generation.", &m->request },
        { "pesc_queue_time_seconds", "vllm:request_queue_time_seconds",
          "From the request to its slot.", &m->queue },
    };
    str label = { 0 };
    if (vllm_model)
        put_label(&label, "model_name", vllm_model);
    head(out, "pesc_requests_total", "counter", "Requests answered, by endpoint and status.");
    for (size_t e = 0; e < n && e < METRICS_ENDPOINTS; e++)
        for (int i = 0; i < N_STATUSES; i++)
            if (m->requests[e][i])
                str_printf(out, "pesc_requests_total{endpoint=\"%s\",status=\"%d\"} %llu\n",
                           names[e], http_statuses[i].code, (unsigned long long)m->requests[e][i]);
    put_figures(out, m, now, label.p);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        put_histogram(out, times[i].name, times[i].help, "", times[i].h);
        if (label.p)
            put_histogram(out, times[i].vllm, times[i].help, label.p, times[i].h);
    }
    str_free(&label);
}
