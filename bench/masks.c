/* bench/masks: how long a mask takes: finding the tokens that a schema allows after a text, and
 * excluding all others from the logits. Texts are drawn token by token from what is allowed; a
 * token that closes something is preferred after a while. The first answer of a schema meets an
 * empty cache, later ones do not.
 *
 *   masks TOKENIZER.json [SCHEMA.json...] */
#include "base/clock.h"
#include "base/rng.h"
#include "grammar/grammar.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWERS = 20, MAX_TOKENS = 400, SOON = 60 };

static const char *const built_in[] = {
    "{\"type\":\"object\"}",
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
    "\"integer\","
    "\"minimum\":0,\"maximum\":150},\"email\":{\"type\":\"string\",\"format\":\"email\"},\"tags\":{"
    "\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":10}},\"required\":[\"name\","
    "\"age\"]}",
    "{\"type\":\"object\",\"properties\":{\"title\":{\"type\":\"string\",\"maxLength\":200},"
    "\"kind\":{"
    "\"enum\":[\"book\",\"film\",\"song\"]},\"parts\":{\"type\":\"array\",\"items\":{\"$ref\":\"#"
    "\"}},"
    "\"score\":{\"type\":\"number\",\"minimum\":0,\"maximum\":10}},\"required\":[\"title\","
    "\"kind\","
    "\"parts\"]}",
    "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\",\"format\":\"uuid\"},\"at\":{"
    "\"type\":\"string\",\"format\":\"date-time\"},\"note\":{\"type\":\"string\",\"pattern\":\"^[A-"
    "Za-z ,"
    ".]*$\"}},\"required\":[\"id\",\"at\",\"note\"]}",
};

static void must(pesc_status s)
{
    if (s == PESC_OK)
        return;
    fprintf(stderr, "%s\n", pesc_last_error());
    exit(pesc_status_exit_code(s));
}

typedef struct answer {
    int32_t ids[MAX_TOKENS];
    size_t n;
    double seconds[MAX_TOKENS];
} answer;

/* One of the tokens that are left, by the key; -1: none. */
static int32_t pick(const piece_trie *p, const float *logits, rng_key key, bool closing)
{
    int32_t chosen = -1;
    uint64_t seen = 0;
    for (int32_t id = 0; id < p->vocab; id++)
        if (!isinf(logits[id]) && (!closing || strchr("\"]}", p->text[p->first[id]])))
            if (rng_below(key, (uint64_t)id, ++seen) == 0)
                chosen = id;
    return chosen;
}

static void write_answer(const piece_trie *p, grammar *g, float *logits, uint64_t seed, answer *a)
{
    matcher *m;
    must(matcher_open(&m, g));
    for (a->n = 0; a->n < MAX_TOKENS; a->n++) {
        rng_key key = { seed, rng_stream(a->n, 0, 0) };
        memset(logits, 0, (size_t)p->vocab * sizeof *logits);
        double began = clock_seconds();
        bool any = matcher_exclude(m, a->ids, a->n, NULL, 0, logits);
        a->seconds[a->n] = clock_seconds() - began;
        if (!any)
            break;
        int32_t id = a->n > SOON ? pick(p, logits, key, true) : -1;
        a->ids[a->n] = id < 0 ? pick(p, logits, key, false) : id;
    }
    must(matcher_status(m));
    matcher_close(m);
}

static int by_size(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static void report(const char *what, double *seconds, size_t n)
{
    double sum = 0;
    qsort(seconds, n, sizeof *seconds, by_size);
    for (size_t i = 0; i < n; i++)
        sum += seconds[i];
    printf("  %-14s %6zu tokens: mean %7.1f us, median %7.1f, p99 %7.1f, largest %8.1f\n", what, n,
           1e6 * sum / (double)n, 1e6 * seconds[n / 2], 1e6 * seconds[n * 99 / 100],
           1e6 * seconds[n - 1]);
}

static void measure(const piece_trie *p, const char *schema, float *logits)
{
    static answer a;
    static double all[ANSWERS * MAX_TOKENS];
    size_t n = 0;
    grammar *g;
    grammar_source from = { .kind = PESC_GRAMMAR_SCHEMA, .text = schema, .n = strlen(schema) };
    double began = clock_seconds();
    must(grammar_open(&g, p, &from));
    printf("%.70s...\n  compiled in %.2f ms\n", schema, 1e3 * (clock_seconds() - began));
    for (int i = 0; i < ANSWERS; i++) {
        write_answer(p, g, logits, (uint64_t)i, &a);
        if (i == 0)
            report("first answer", a.seconds, a.n);
        for (size_t k = 0; i > 0 && k < a.n; k++)
            all[n++] = a.seconds[k];
    }
    report("later answers", all, n);
    printf("  %.1f MiB\n", (double)grammar_bytes(g) / (1 << 20));
    grammar_close(g);
}

int main(int argc, char **argv)
{
    tokenizer *t;
    piece_trie *p;
    if (argc < 2) {
        fprintf(stderr, "masks TOKENIZER.json [SCHEMA.json...]\n");
        return 2;
    }
    must(tokenizer_open_file(&t, argv[1]));
    double began = clock_seconds();
    must(pieces_open(&p, t, (int32_t)tokenizer_size(t)));
    printf("%d tokens, %u trie nodes, %zu exits, in %.0f ms\n", p->vocab, p->n_nodes, p->n_exits,
           1e3 * (clock_seconds() - began));
    float *logits = malloc((size_t)p->vocab * sizeof *logits);
    for (int i = 2; logits && i < argc; i++) {
        json_t *v;
        must(json_read(&v, argv[i], 1 << 20));
        char *text = json_dumps(v, 0);
        measure(p, text, logits);
        free(text);
        json_decref(v);
    }
    for (size_t i = 0; logits && argc == 2 && i < sizeof built_in / sizeof *built_in; i++)
        measure(p, built_in[i], logits);
    free(logits);
    pieces_close(p);
    tokenizer_close(t);
    return 0;
}
