/* cmd_bench: the speed of prefill and decode of a model, of a tokenizer, or of a server. */
#include "cli/command.h"
#include "cli/opt/ids.h"
#include "cli/opt/input.h"
#include "cli/opt/open.h"
#include "cli/show/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct series {
    double *v; /* one rate per run */
    size_t n;
} series;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double best(const series *s)
{
    return s->v[s->n - 1];
}

static double median(const series *s)
{
    return (s->v[(s->n - 1) / 2] + s->v[s->n / 2]) / 2;
}

static pesc_status series_open(series *s, int64_t n)
{
    s->v = calloc((size_t)n, sizeof *s->v);
    return s->v ? PESC_OK : out_nomem("the measurements");
}

static void print_series(const char *key, const char *unit, const series *s, bool json)
{
    qsort(s->v, s->n, sizeof *s->v, ascending);
    if (!json) {
        printf("%-12s best %.1f, median %.1f %s\n", key, best(s), median(s), unit);
        return;
    }
    out_object(key, "unit=%s best=%.6g median=%.6g runs=%ld", unit, best(s), median(s), s->n);
}

static int64_t peak_bytes(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (int64_t)u.ru_maxrss * 1024 : 0;
}

/* ---- a model ---- */

/* Where the time of one run went. */
typedef struct profile {
    pesc_profile_row rows[64];
    size_t n;
} profile;

typedef struct model_bench {
    open_model m;
    pesc_session *session;
    int32_t *ids;
    size_t n_prompt, n_decode;
    double load_seconds;
    series prefill, decode;
    profile of_prefill, of_decode;
} model_bench;

/* Ids spread over the vocabulary, the same in every run; their meaning does not matter. */
static pesc_status make_ids(model_bench *b)
{
    size_t n = b->n_prompt + b->n_decode;
    b->ids = calloc(n, sizeof *b->ids);
    if (!b->ids)
        return out_nomem("the ids");
    uint64_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        b->ids[i] = (int32_t)((state >> 33) % (uint64_t)b->m.info.vocab);
    }
    return PESC_OK;
}

static pesc_status run_once(model_bench *b, bool counted)
{
    const float *logits;
    pesc_session_reset(b->session);
    double t0 = progress_clock();
    TRY(pesc_session_feed(b->session, b->ids, b->n_prompt, &logits));
    double t1 = progress_clock();
    for (size_t i = 0; i < b->n_decode; i++)
        TRY(pesc_session_feed(b->session, b->ids + b->n_prompt + i, 1, &logits));
    double t2 = progress_clock();
    if (counted) {
        b->prefill.v[b->prefill.n++] = (double)b->n_prompt / (t1 - t0);
        b->decode.v[b->decode.n++] = (double)b->n_decode / (t2 - t1);
    }
    return PESC_OK;
}

static void take_profile(const model_bench *b, profile *p)
{
    enum { CAP = sizeof p->rows / sizeof *p->rows };
    size_t n = pesc_device_profile_rows(b->m.device, p->rows, CAP);
    p->n = n < CAP ? n : CAP;
}

/* One more run, whose operations are timed. */
static pesc_status profile_once(model_bench *b)
{
    const float *logits;
    pesc_session_reset(b->session);
    TRY(pesc_device_profile(b->m.device, true));
    TRY(pesc_session_feed(b->session, b->ids, b->n_prompt, &logits));
    take_profile(b, &b->of_prefill);
    TRY(pesc_device_profile(b->m.device, true));
    for (size_t i = 0; i < b->n_decode; i++)
        TRY(pesc_session_feed(b->session, b->ids + b->n_prompt + i, 1, &logits));
    take_profile(b, &b->of_decode);
    return pesc_device_profile(b->m.device, false);
}

static pesc_status measure_model(const options *o, model_bench *b)
{
    double t0 = progress_clock();
    TRY(open_from(&b->m, o));
    b->load_seconds = progress_clock() - t0;
    b->n_prompt = (size_t)o->prompt_tokens;
    b->n_decode = (size_t)o->decode_tokens;
    int64_t n = o->prompt_tokens + o->decode_tokens;
    if (n > INT32_MAX)
        return out_fail(PESC_USAGE, "bench: found %lld tokens in a run, expected at most %d",
                        (long long)n, INT32_MAX);
    TRY(pesc_session_open(&b->session, b->m.model, (int32_t)n));
    TRY(make_ids(b));
    TRY(series_open(&b->prefill, o->repeat));
    TRY(series_open(&b->decode, o->repeat));
    for (int64_t i = 0; i <= o->repeat; i++) {
        progress_show("runs", (uint64_t)i, (uint64_t)o->repeat + 1);
        TRY(run_once(b, i > 0));
    }
    if (o->profile)
        TRY(profile_once(b));
    progress_clear();
    return PESC_OK;
}

static double rate_of(const pesc_profile_row *r) /* GB of weights a second */
{
    return r->seconds > 0 ? (double)r->weight_bytes / 1e9 / r->seconds : 0;
}

/* The operations of `runs` forwards, for each of them. */
static void print_profile(const char *key, const char *title, const profile *p, double runs,
                          bool json)
{
    double all = 0;
    for (size_t i = 0; i < p->n; i++)
        all += p->rows[i].seconds;
    if (json)
        out_begin(key, '[');
    else
        printf("%s, operation by operation: %.2f ms\n", title, all * 1e3 / runs);
    for (size_t i = 0; i < p->n; i++) {
        const pesc_profile_row *r = &p->rows[i];
        double calls = (double)r->calls / runs, ms = r->seconds * 1e3 / runs;
        if (json) {
            out_object(NULL, "op=%s calls=%.6g ms=%.6g share=%.6g gb_per_second=%.6g", r->name,
                       calls, ms, r->seconds / all, rate_of(r));
            continue;
        }
        printf("  %-22s %6.0f calls %9.3f ms %5.1f %%", r->name, calls, ms, 100 * r->seconds / all);
        printf(rate_of(r) > 0 ? "  weights at %.1f GB/s\n" : "\n", rate_of(r));
    }
    if (json)
        out_end();
}

static void print_profiles(const model_bench *b, bool json)
{
    if (json)
        out_begin("profile", '{');
    print_profile("prefill", "prefill", &b->of_prefill, 1, json);
    print_profile("decode", "a token", &b->of_decode, (double)b->n_decode, json);
    if (json)
        out_end();
}

static void print_model(const options *o, const model_bench *b)
{
    out_number bytes;
    if (o->json) {
        out_begin(NULL, '{');
        out_fields("model=%s device=%s prompt_tokens=%ld decode_tokens=%ld load_seconds=%.6g "
                   "peak_bytes=%ld",
                   o->model, pesc_device_name(b->m.device), o->prompt_tokens, o->decode_tokens,
                   b->load_seconds, peak_bytes());
    } else {
        printf("device       %s\nload         %.2f s\n", pesc_device_name(b->m.device),
               b->load_seconds);
    }
    print_series("prefill", "tokens/s", &b->prefill, o->json);
    print_series("decode", "tokens/s", &b->decode, o->json);
    if (!o->json)
        printf("memory       %s at most\n", out_bytes(bytes, (uint64_t)peak_bytes()));
    if (o->profile)
        print_profiles(b, o->json);
    if (o->json)
        out_end();
}

static pesc_status bench_model(const options *o)
{
    model_bench b = { 0 };
    pesc_status st = measure_model(o, &b);
    if (st == PESC_OK)
        print_model(o, &b);
    free(b.prefill.v);
    free(b.decode.v);
    free(b.ids);
    pesc_session_close(b.session);
    open_free(&b.m);
    return st;
}

/* ---- a tokenizer ---- */

typedef struct text_bench {
    pesc_tokenizer *tokenizer;
    char *text;
    size_t n, count;
    series encode;
} text_bench;

static pesc_status measure_text(const options *o, text_bench *b)
{
    TRY(pesc_tokenizer_open(&b->tokenizer, o->model, progress_events()));
    TRY(input_read(o->text, &b->text, &b->n));
    if (b->n == 0)
        return out_fail(PESC_FORMAT, "%s: found no text, expected some to encode", o->text);
    TRY(series_open(&b->encode, o->repeat));
    for (int64_t i = 0; i <= o->repeat; i++) {
        int32_t *ids;
        progress_show("runs", (uint64_t)i, (uint64_t)o->repeat + 1);
        double t0 = progress_clock();
        TRY(ids_encode(b->tokenizer, b->text, b->n, 0, &ids, &b->count));
        double seconds = progress_clock() - t0;
        free(ids);
        if (i > 0)
            b->encode.v[b->encode.n++] = (double)b->n / 1e6 / seconds;
    }
    progress_clear();
    return PESC_OK;
}

static pesc_status bench_text(const options *o)
{
    text_bench b = { 0 };
    pesc_status st = measure_text(o, &b);
    if (st == PESC_OK && o->json) {
        out_begin(NULL, '{');
        out_fields("tokenizer=%s bytes=%ld tokens=%ld", o->model, b.n, b.count);
        print_series("encode", "MB/s", &b.encode, true);
        out_end();
    } else if (st == PESC_OK) {
        printf("text         %zu bytes, %zu tokens\n", b.n, b.count);
        print_series("encode", "MB/s", &b.encode, false);
    }
    free(b.encode.v);
    free(b.text);
    pesc_tokenizer_close(b.tokenizer);
    return st;
}

pesc_status cmd_bench(const options *o)
{
    bool serve = strcmp(o->model, "serve") == 0;
    if (serve != (o->url != NULL))
        return out_fail(PESC_USAGE, serve ? "bench serve: expected the URL of a server"
                                          : "bench: found two models, expected one");
    return serve ? bench_serve(o) : o->text ? bench_text(o) : bench_model(o);
}
