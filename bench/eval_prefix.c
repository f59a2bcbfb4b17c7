/* bench/eval_prefix: requests in the shape of benchmarks through the scheduler: how many tokens are
 * computed of those requested, how many a forward carries, and how long it takes. Tokens are
 * random; documents of a group share the tokens of their few-shot examples, choices those of their
 * document.
 *
 *   eval_prefix MODEL [DEVICE=cpu] [SLOTS=64] [TOKENS of a forward=0: the device's own] [SHAPE] */
#include "base/clock.h"
#include "base/rng.h"
#include "infer/scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPT = 2048 };

typedef struct shape {
    const char *name;
    int groups, shots;         /* groups of documents, and the tokens each begins with */
    int docs, question;        /* of a group; tokens */
    int choices, continuation; /* 0 choices: `continuation` tokens are generated */
} shape;

/* About the lengths that a Llama-2 tokenizer gives. */
static const shape shapes[] = {
    { "mmlu 5-shot", 2, 640, 60, 90, 4, 1 },        { "hellaswag 0-shot", 1, 1, 100, 60, 4, 22 },
    { "hellaswag 10-shot", 4, 1000, 1, 60, 4, 22 }, { "arc_easy 0-shot", 1, 1, 200, 25, 4, 5 },
    { "gsm8k 5-shot", 1, 700, 64, 80, 0, 60 },
};

static void must(pesc_status s)
{
    if (s == PESC_OK)
        return;
    fprintf(stderr, "%s\n", pesc_last_error());
    exit(pesc_status_exit_code(s));
}

typedef struct text {
    int32_t ids[MAX_PROMPT], n;
} text;

static void append(text *t, int n, int32_t vocab)
{
    static uint64_t drawn;
    for (int i = 0; i < n; i++)
        t->ids[t->n++] = (int32_t)rng_below((rng_key){ 1, 2 }, drawn++, (uint64_t)vocab);
}

static pesc_status ignore(void *ud, const sched_result *r)
{
    *(double *)ud += r->logprob;
    return PESC_OK;
}

static void add_document(scheduler *s, const shape *h, text doc, int32_t vocab)
{
    static double sum;
    sched_request r = { .done = ignore, .ud = &sum };
    append(&doc, h->question, vocab);
    for (int c = 0; c < (h->choices ? h->choices : 1); c++) {
        text t = doc;
        if (h->choices) {
            r.first = t.n;
            append(&t, h->continuation, vocab);
        } else {
            r.max_tokens = h->continuation;
        }
        r.ids = t.ids;
        r.n = t.n;
        must(scheduler_add(s, &r, NULL));
    }
}

static void run(pesc_model *m, const shape *h, scheduler_options o)
{
    scheduler *s;
    o.context = h->shots + h->question + h->continuation;
    must(scheduler_open(&s, m, &o));
    for (int g = 0; g < h->groups; g++) {
        text shots = { .n = 0 };
        append(&shots, h->shots, m->shape.cfg.vocab);
        for (int d = 0; d < h->docs; d++)
            add_document(s, h, shots, m->shape.cfg.vocab);
    }
    double t0 = clock_seconds();
    must(scheduler_sort(s));
    must(scheduler_run(s));
    double seconds = clock_seconds() - t0;
    scheduler_counters c = scheduler_count(s);
    printf("%-18s %9llu %9llu %6.3f %8llu %8.0f %8.2f %9.0f\n", h->name,
           (unsigned long long)c.requested, (unsigned long long)c.computed,
           (double)c.computed / (double)c.requested, (unsigned long long)c.forwards,
           (double)c.computed / (double)c.forwards, seconds, (double)c.computed / seconds);
    scheduler_close(s);
}

static int number(int argc, char **argv, int i)
{
    int n = 0;
    if (argc > i)
        sscanf(argv[i], "%d", &n);
    return n;
}

int main(int argc, char **argv)
{
    pesc_device *dev;
    pesc_model *m;
    if (argc < 2) {
        fprintf(stderr, "eval_prefix MODEL [DEVICE] [SLOTS] [TOKENS] [SHAPE]\n");
        return 2;
    }
    must(pesc_device_open(&dev, argc > 2 ? argv[2] : "cpu"));
    must(pesc_model_open(&m, dev, argv[1], NULL));
    scheduler_options o = { .slots = number(argc, argv, 3), .max_tokens = number(argc, argv, 4) };
    o.slots = o.slots > 0 ? o.slots : 64;
    printf("%-18s %9s %9s %6s %8s %8s %8s %9s\n", "shape", "requested", "computed", "part",
           "forwards", "tokens/f", "seconds", "tokens/s");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (argc < 6 || strstr(shapes[i].name, argv[5]))
            run(m, &shapes[i], o);
    pesc_model_close(m);
    pesc_device_close(dev);
    return 0;
}
