/* opt_yaml: the options of a file (-c run.yaml): one flat mapping of keys to scalars or lists. */
#include "cli/opt/opt.h"

#include "cli/opt/input.h"

#include <yaml.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    options *o;
    yaml_parser_t parser;
    yaml_event_t event;
    char where[320]; /* "run.yaml:3: max_tokens" */
    bool *seen;      /* for each row */
} reader;

static pesc_status bad(const reader *r, const char *found, const char *expected)
{
    return out_fail(PESC_USAGE, "%s:%zu: found %s, expected %s", r->o->config,
                    r->event.start_mark.line + 1, found, expected);
}

/* Replaces r->event by the next event. */
static pesc_status advance(reader *r)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event))
        return PESC_OK;
    memset(&r->event, 0, sizeof r->event);
    return out_fail(PESC_USAGE, "%s:%zu: this is not YAML: %s", r->o->config,
                    r->parser.problem_mark.line + 1,
                    r->parser.problem ? r->parser.problem : "unreadable");
}

static const char *kind(const reader *r)
{
    switch (r->event.type) {
    case YAML_MAPPING_START_EVENT:
        return "a nested mapping";
    case YAML_SEQUENCE_START_EVENT:
        return "a list";
    case YAML_ALIAS_EVENT:
        return "an alias";
    case YAML_SCALAR_EVENT:
        return "a scalar";
    default:
        return "nothing";
    }
}

/* The text of the current scalar; a NUL character is refused. */
static pesc_status scalar(const reader *r, const char **text)
{
    *text = (const char *)r->event.data.scalar.value;
    return strlen(*text) == r->event.data.scalar.length ? PESC_OK
                                                        : bad(r, "a NUL character", "text");
}

/* Sets the option to a copy of the text, owned by the options. */
static pesc_status set_copy(reader *r, const pesc_option *row, const char *text)
{
    char *copy = strdup(text);
    TRY(opt_own(r->o, copy));
    return opt_set(r->o, row, copy, r->where);
}

/* A null in YAML: nothing written, or ~. As text it would be an empty file name or prompt. */
static bool is_null(const yaml_event_t *e)
{
    const char *v = (const char *)e->data.scalar.value;
    return e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (v[0] == '\0' || strcmp(v, "~") == 0 || strcmp(v, "null") == 0);
}

static pesc_status set_scalar(reader *r, const pesc_option *row, bool apply)
{
    if (is_null(&r->event))
        return bad(r, "nothing", opt_value(row) ? opt_value(row) : "true or false");
    const char *text = NULL;
    TRY(scalar(r, &text));
    return apply ? set_copy(r, row, text) : PESC_OK;
}

/* A list of words as the one text that a flag takes: a,b,c. */
static pesc_status set_words(reader *r, const pesc_option *row, bool apply)
{
    char all[512] = "";
    for (size_t n = 0;;) {
        const char *word;
        TRY(advance(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return apply ? set_copy(r, row, all) : PESC_OK;
        if (r->event.type != YAML_SCALAR_EVENT)
            return bad(r, kind(r), "text");
        TRY(scalar(r, &word));
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", n ? "," : "", word);
        if (n >= sizeof all)
            return bad(r, "a list of more than 511 bytes", row->values);
    }
}

static pesc_status read_value(reader *r, const pesc_option *row)
{
    /* flags win over the file, whose form is checked nevertheless */
    bool apply = !r->o->given[opt_index(row)];
    TRY(advance(r));
    if (r->event.type == YAML_SCALAR_EVENT)
        return set_scalar(r, row, apply);
    bool list = row->kind == PESC_OPTION_LIST || row->kind == PESC_OPTION_WORDS;
    if (r->event.type != YAML_SEQUENCE_START_EVENT || !list)
        return bad(r, kind(r), list ? "text or a list" : "one value");
    if (row->kind == PESC_OPTION_WORDS)
        return set_words(r, row, apply);
    for (;;) {
        TRY(advance(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return PESC_OK;
        if (r->event.type != YAML_SCALAR_EVENT)
            return bad(r, kind(r), "text");
        TRY(set_scalar(r, row, apply));
    }
}

static pesc_status read_pair(reader *r)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return bad(r, kind(r), "a key");
    const char *key = (const char *)r->event.data.scalar.value;
    const pesc_option *row = opt_find(r->o->cmd, key);
    snprintf(r->where, sizeof r->where, "%.200s:%zu: %.60s", r->o->config,
             r->event.start_mark.line + 1, key);
    if (row && (strcmp(key, "config") == 0 || strcmp(key, "help") == 0))
        return bad(r, "config or help", "keys that make sense in a file");
    if (!row)
        return opt_unknown(r->o, key, r->where, OPT_AS_KEY);
    if (r->seen[opt_index(row)])
        return bad(r, "a key for the second time", "each key once");
    r->seen[opt_index(row)] = true;
    return read_value(r, row);
}

static pesc_status read_document(reader *r)
{
    TRY(advance(r)); /* the start of the stream */
    TRY(advance(r));
    if (r->event.type == YAML_STREAM_END_EVENT)
        return PESC_OK;
    TRY(advance(r));
    if (r->event.type != YAML_MAPPING_START_EVENT)
        return bad(r, kind(r), "keys and values");
    for (;;) {
        TRY(advance(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            break;
        TRY(read_pair(r));
    }
    TRY(advance(r)); /* the end of the document */
    TRY(advance(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        return bad(r, "a second document", "the end of the file");
    return PESC_OK;
}

pesc_status opt_read_yaml(options *o)
{
    char *text;
    size_t n, n_rows;
    (void)opt_rows(&n_rows);
    pesc_status st = input_read(o->config, &text, &n);
    if (st != PESC_OK) /* an options file is part of the request, not an input */
        return st == PESC_NOMEM ? st : PESC_USAGE;
    reader r = { .o = o, .seen = calloc(n_rows, sizeof *r.seen) };
    if (!r.seen || !yaml_parser_initialize(&r.parser)) {
        st = out_nomem(o->config);
    } else {
        yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n);
        st = read_document(&r);
        yaml_event_delete(&r.event);
        yaml_parser_delete(&r.parser);
    }
    free(r.seen);
    free(text);
    return st;
}
