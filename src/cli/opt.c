#include "cli/opt.h"

#include "cli/command.h"
#include "cli/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool opt_applies(const opt_row *r, const command *c)
{
    return r->commands >> (c - commands) & 1;
}

/* Whether word is the name, its - written as `dash`. */
static bool same_name(const char *name, const char *word, size_t n, char dash)
{
    for (size_t i = 0; i < n; i++)
        if (!name[i] || word[i] != (name[i] == '-' ? dash : name[i]))
            return false;
    return name[n] == '\0';
}

static const opt_row *find(const command *c, const char *word, size_t n, char dash)
{
    for (size_t i = 0; i < n_opt_rows; i++)
        if (opt_applies(&opt_rows[i], c) && same_name(opt_rows[i].name, word, n, dash))
            return &opt_rows[i];
    return NULL;
}

const opt_row *opt_find(const command *c, const char *word, char dash)
{
    return find(c, word, strlen(word), dash);
}

static const opt_row *find_letter(const command *c, char letter)
{
    for (size_t i = 0; i < n_opt_rows; i++)
        if (opt_applies(&opt_rows[i], c) && opt_rows[i].letter == letter)
            return &opt_rows[i];
    return NULL;
}

/* ---- suggestions ---- */

/* Levenshtein distance; words over 63 bytes count as far apart. */
static int distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    int row[64];
    if (n > 63 || m > 63)
        return 64;
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int change = corner + (a[i - 1] != b[j - 1]);
            int gap = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
            corner = row[j];
            row[j] = change < gap ? change : gap;
        }
    }
    return row[m];
}

const char *opt_nearest(const char *word, const char *const *candidates, size_t n)
{
    const char *best = NULL;
    int limit = (int)strlen(word) / 3 + 2;
    for (size_t i = 0; i < n; i++) {
        int d = distance(word, candidates[i]);
        if (d < limit) {
            limit = d;
            best = candidates[i];
        }
    }
    return best;
}

pesc_status opt_unknown(const options *o, const char *word, const char *where, char dash)
{
    const char *names[OPT_MAX];
    size_t n = 0;
    char flag[64];
    for (size_t i = 0; i < n_opt_rows; i++)
        if (opt_applies(&opt_rows[i], o->cmd))
            names[n++] = opt_rows[i].name;
    const char *near = opt_nearest(word, names, n);
    if (!near)
        return out_fail(PESC_USAGE, "%s: there is no such option; `pesc %s --help` lists them",
                        where, o->cmd->name);
    snprintf(flag, sizeof flag, "%s%s", dash == '-' ? "--" : "", near);
    for (char *p = flag; dash == '_' && *p; p++)
        *p = *p == '-' ? '_' : *p;
    return out_fail(PESC_USAGE, "%s: there is no such option; did you mean %s?", where, flag);
}

/* ---- values ---- */

static bool is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *c = choices; n > 0 && c; c = strchr(c, '|')) {
        c += *c == '|';
        if (strncmp(c, text, n) == 0 && (c[n] == '|' || c[n] == '\0'))
            return true;
    }
    return false;
}

static pesc_status append(opt_list *l, const char *text)
{
    const char **more = realloc(l->items, (l->n + 1) * sizeof *more);
    if (!more)
        return out_nomem("the options");
    l->items = more;
    l->items[l->n++] = text;
    return PESC_OK;
}

pesc_status opt_set(options *o, const opt_row *r, const char *text, const char *where)
{
    void *field = (char *)o + r->field;
    o->given[r - opt_rows] = true;
    switch (r->type) {
    case OPT_BOOL:
        *(bool *)field = strcmp(text, "true") == 0;
        if (*(bool *)field || strcmp(text, "false") == 0)
            return PESC_OK;
        return out_fail(PESC_USAGE, "%s: found \"%s\", expected true or false", where, text);
    case OPT_INT:
        if (num_int(text, strlen(text), (int64_t)r->min, INT64_MAX, field) &&
            (double)*(int64_t *)field <= r->max)
            return PESC_OK;
        return out_fail(PESC_USAGE, "%s: found \"%s\", expected a whole number from %.0f to %.0f",
                        where, text, r->min, r->max);
    case OPT_REAL:
        if (num_real(text, r->min, r->max, field))
            return PESC_OK;
        return out_fail(PESC_USAGE, "%s: found \"%s\", expected a number from %g to %g", where,
                        text, r->min, r->max);
    case OPT_CHOICE:
        if (!is_choice(r->value, text))
            return out_fail(PESC_USAGE, "%s: found \"%s\", expected %s", where, text, r->value);
        *(const char **)field = text;
        return PESC_OK;
    case OPT_TEXT:
    case OPT_WORDS:
        *(const char **)field = text;
        return PESC_OK;
    case OPT_LIST:
        return text[0] ? append(field, text)
                       : out_fail(PESC_USAGE, "%s: found nothing, expected %s", where, r->value);
    }
    return PESC_OK;
}

/* ---- the command line ---- */

typedef struct line {
    int argc, at;
    char **argv;
    int n_positional;
    const opt_row *list; /* the flag before, when it takes a list: `--data a b` */
} line;

static pesc_status set_positional(options *o, line *l, const char *word)
{
    const command *c = o->cmd;
    const int max = sizeof c->keys / sizeof *c->keys;
    const char *key = l->n_positional < max ? c->keys[l->n_positional] : NULL;
    if (l->list && l->n_positional >= c->n_required)
        return opt_set(o, l->list, word, l->list->name);
    const opt_row *last = l->n_positional ? opt_find(c, c->keys[l->n_positional - 1], '-') : NULL;
    if (!key && last && last->type == OPT_LIST) /* as many as there are: `select a b c` */
        return opt_set(o, last, word, last->value);
    if (!key)
        return out_fail(PESC_USAGE, "%s: unexpected argument \"%s\"; usage: pesc %s %s", c->name,
                        word, c->name, c->synopsis);
    l->n_positional++;
    const opt_row *r = opt_find(c, key, '-');
    return opt_set(o, r, word, r->value);
}

/* The value of a flag without "=": the next word. A boolean takes it only if it is one; other
 * flags refuse a word that is itself a flag of this command. */
static pesc_status next_value(const options *o, const opt_row *r, line *l, const char **value)
{
    const char *next = l->at < l->argc ? l->argv[l->at] : NULL;
    if (r->type == OPT_BOOL) {
        bool taken = next && (strcmp(next, "true") == 0 || strcmp(next, "false") == 0);
        l->at += taken;
        *value = taken ? next : "true";
        return PESC_OK;
    }
    if (!next || (strncmp(next, "--", 2) == 0 && opt_find(o->cmd, next + 2, '-')))
        return out_fail(PESC_USAGE, "%s: --%s needs a value: --%s %s", o->cmd->name, r->name,
                        r->name, r->value);
    *value = next;
    l->at++;
    return PESC_OK;
}

static pesc_status set_flag(options *o, line *l, const char *word)
{
    bool is_long = word[1] == '-';
    const char *name = word + 2, *equals = is_long ? strchr(name, '=') : NULL;
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    const opt_row *r = is_long ? find(o->cmd, name, n, '-') : NULL;
    if (!is_long && word[2] == '\0')
        r = find_letter(o->cmd, word[1]);
    char where[96], bare[64];
    if (!r) {
        snprintf(bare, sizeof bare, "%.*s", (int)(n < 60 ? n : 60), is_long ? name : "");
        snprintf(where, sizeof where, "%s: %.*s", o->cmd->name, (int)(n < 60 ? n : 60) + 2, word);
        return opt_unknown(o, bare, where, '-');
    }
    const char *value = equals ? equals + 1 : NULL;
    l->list = r->type == OPT_LIST ? r : NULL;
    if (!value)
        TRY(next_value(o, r, l, &value));
    snprintf(where, sizeof where, "%s: --%s", o->cmd->name, r->name);
    return opt_set(o, r, value, where);
}

static pesc_status parse_line(options *o, int argc, char **argv)
{
    line l = { .argc = argc, .argv = argv };
    bool flags = true;
    while (l.at < l.argc) {
        const char *word = l.argv[l.at++];
        if (flags && strcmp(word, "--") == 0)
            flags = false;
        else if (flags && word[0] == '-' && word[1])
            TRY(set_flag(o, &l, word));
        else
            TRY(set_positional(o, &l, word));
    }
    return PESC_OK;
}

/* A resumed run has its options in its directory. */
static pesc_status use_run(options *o)
{
    static const char name[] = "/run.yaml";
    size_t n = strlen(o->output);
    char *path = malloc(n + sizeof name), **more = malloc(sizeof *more);
    if (!path || !more) {
        free(path);
        free(more);
        return out_nomem("the options");
    }
    memcpy(path, o->output, n);
    memcpy(path + n, name, sizeof name);
    more[0] = path;
    o->owned = more;
    o->n_owned = 1;
    if (access(path, R_OK) == 0)
        o->config = path;
    return PESC_OK;
}

pesc_status opt_parse(options *o, const command *c, int argc, char **argv)
{
    *o = (options){ .cmd = c };
    TRY(parse_line(o, argc, argv));
    if (o->help)
        return PESC_OK;
    if (o->resume && o->output && !o->config)
        TRY(use_run(o));
    if (o->config)
        TRY(opt_read_yaml(o));
    for (size_t i = 0; i < n_opt_rows; i++) {
        const opt_row *r = &opt_rows[i];
        if (opt_applies(r, c) && r->fallback && !o->given[i]) {
            TRY(opt_set(o, r, r->fallback, r->name));
            o->given[i] = false;
        }
    }
    for (int i = 0; i < c->n_required; i++) {
        const opt_row *r = opt_find(c, c->keys[i], '-');
        if (!o->given[r - opt_rows] && o->resume && o->output && !o->config)
            return out_fail(PESC_USAGE, "%s: has no run.yaml: there is no run to go on with",
                            o->output);
        if (!o->given[r - opt_rows])
            return out_fail(PESC_USAGE, "%s: %s is missing; usage: pesc %s %s", c->name, r->value,
                            c->name, c->synopsis);
    }
    return PESC_OK;
}

void opt_free(options *o)
{
    for (size_t i = 0; i < o->n_owned; i++)
        free(o->owned[i]);
    free(o->owned);
    free(o->stop.items);
    free(o->data.items);
    free(o->eval_data.items);
    free(o->inputs.items);
    free(o->general.items);
    free(o->code.items);
    free(o->maths.items);
    free(o->task.items);
    free(o->alignment.items);
    free(o->tasks.items);
    *o = (options){ 0 };
}
