/* For tools/conformance/grammar.py: what a compiled JSON Schema accepts and writes. Each line of
 * standard input is {"schema": ..., "texts": [...], "generate": N, "seed": S}; the answer is
 * {"accepts": [...], "generated": [...]}, or {"error": sentence}. Texts are generated token by
 * token, each drawn at random from those that the mask allows; null: not complete after
 * MAX_TOKENS. */
#include "base/mem.h"
#include "base/rng.h"
#include "grammar/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 2000, SOON = 60 };

typedef struct writer {
    const piece_trie *p;
    matcher *m;
    int32_t ids[MAX_TOKENS];
    size_t n;
    rng_key key;
    uint32_t step;
} writer;

static uint32_t draw(writer *w, uint32_t n)
{
    return (uint32_t)(((uint64_t)rng_u32(w->key, w->step++) * n) >> 32);
}

/* A token of the set; later ones that close something are preferred. */
static int32_t pick(writer *w, const uint32_t *set, bool closing)
{
    int32_t chosen = -1;
    uint32_t seen = 0;
    for (int32_t id = 0; id < w->p->vocab; id++) {
        if (!(set[id / 32] >> (id % 32) & 1))
            continue;
        char first = w->p->text[w->p->first[id]];
        if (closing && !strchr("\"]}", first))
            continue;
        if (draw(w, ++seen) == 0)
            chosen = id;
    }
    return chosen;
}

static json_t *generate(writer *w, grammar *g)
{
    str text = { 0 };
    json_t *out = NULL;
    if (matcher_open(&w->m, g) != PESC_OK)
        return json_null();
    for (w->n = 0; w->n < MAX_TOKENS; w->n++) {
        bool accepts;
        const uint32_t *set = matcher_allowed(w->m, w->ids, w->n, &accepts);
        int32_t id = -1;
        if (set && !(accepts && draw(w, 2))) {
            id = w->n > SOON && draw(w, 4) ? pick(w, set, true) : -1;
            id = id < 0 ? pick(w, set, false) : id;
        }
        if (id < 0) {
            out = accepts ? json_stringn(text.p ? text.p : "", text.n)
                          : json_sprintf("stuck: %s", pesc_last_error());
            break;
        }
        w->ids[w->n] = id;
        str_add(&text, w->p->text + w->p->first[id], pieces_length(w->p, id));
    }
    matcher_close(w->m);
    str_free(&text);
    return out ? out : json_null();
}

static json_t *answer(const piece_trie *p, const json_t *q)
{
    str ignored = { 0 };
    grammar *g = NULL;
    grammar_source from = { .schema = json_object_get(q, "schema"), .ignored = NULL };
    const json_t *texts = json_object_get(q, "texts");
    pesc_status st = from.schema ? grammar_open(&g, p, &from) : PESC_FORMAT;
    str_free(&ignored);
    if (st != PESC_OK)
        return json_pack("{ss}", "error", pesc_last_error());
    json_t *accepts = json_array(), *generated = json_array();
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *t = json_array_get(texts, i);
        bool matches = false, begins;
        st = grammar_matches(g, json_string_value(t), json_string_length(t), &matches, &begins);
        json_array_append_new(accepts, st == PESC_OK ? json_boolean(matches) : json_null());
    }
    json_int_t n = json_integer_value(json_object_get(q, "generate"));
    writer *w = mem_zalloc(1, sizeof *w);
    for (json_int_t i = 0; w && i < n; i++) {
        w->p = p;
        w->step = 0;
        w->key = (rng_key){ (uint64_t)json_integer_value(json_object_get(q, "seed")),
                            rng_stream(7, (uint32_t)i, 0) };
        json_array_append_new(generated, generate(w, g));
    }
    mem_free(w);
    grammar_close(g);
    return json_pack("{soso}", "accepts", accepts, "generated", generated);
}

int main(int argc, char **argv)
{
    tokenizer *t;
    piece_trie *p;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    if (argc != 2 || tokenizer_open_file(&t, argv[1]) != PESC_OK ||
        pieces_open(&p, t, (int32_t)tokenizer_size(t)) != PESC_OK) {
        fprintf(stderr, "schema_texts: %s\n",
                argc == 2 ? pesc_last_error() : "give tokenizer.json");
        return 1;
    }
    while ((n = getline(&line, &cap, stdin)) > 0) {
        json_t *q = NULL, *a;
        a = json_parse(&q, line, (size_t)n, "a line") == PESC_OK
                ? answer(p, q)
                : json_pack("{ss}", "error", pesc_last_error());
        char *text = json_dumps(a, JSON_COMPACT);
        puts(text ? text : "{\"error\": \"no answer\"}");
        fflush(stdout);
        free(text);
        json_decref(a);
        json_decref(q);
    }
    free(line);
    pieces_close(p);
    tokenizer_close(t);
    return 0;
}
