#include "cli/opt/opt.h"

#include "cli/command.h"

#include <pesc/option_rows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- rows ---- */

#define STRUCT options
#define WHICH (pesc_option_struct) OPT_OWN

static const pesc_option command_rows[] = { COMMAND_ROWS(ROW, ROW) };
static const pesc_option common_rows[] = { COMMON_ROWS(ROW, ROW) };

const pesc_option *opt_rows(size_t *n)
{
    static pesc_option *all;
    static size_t count;
    if (!all) {
        size_t n_library, first = sizeof command_rows / sizeof *command_rows;
        const pesc_option *library = pesc_option_rows(&n_library);
        count = first + n_library + sizeof common_rows / sizeof *common_rows;
        all = malloc(count * sizeof *all);
        if (!all)
            abort(); /* nothing can be parsed, and nothing has begun */
        memcpy(all, command_rows, sizeof command_rows);
        memcpy(all + first, library, n_library * sizeof *all);
        memcpy(all + first + n_library, common_rows, sizeof common_rows);
    }
    if (n)
        *n = count;
    return all;
}

static const struct {
    size_t at, size;
} structs[] = {
    [PESC_OPTIONS_LOAD] = { offsetof(options, load), sizeof(pesc_load_options) },
    [PESC_OPTIONS_CRAFT] = { offsetof(options, craft), sizeof(pesc_craft_options) },
    [PESC_OPTIONS_EXPORT] = { offsetof(options, export), sizeof(pesc_export_options) },
    [PESC_OPTIONS_SAMPLE] = { offsetof(options, sample), sizeof(pesc_sample_options) },
    [PESC_OPTIONS_DATA] = { offsetof(options, data), sizeof(pesc_data_options) },
    [PESC_OPTIONS_TRAIN] = { offsetof(options, train), sizeof(pesc_train_options) },
    [PESC_OPTIONS_EVAL] = { offsetof(options, eval), sizeof(pesc_eval_options) },
    [PESC_OPTIONS_ROUTES] = { offsetof(options, routes), sizeof(pesc_routes_options) },
    [PESC_OPTIONS_COMPARE] = { offsetof(options, compare), sizeof(pesc_compare_options) },
    [PESC_OPTIONS_COST] = { offsetof(options, cost), sizeof(pesc_cost_options) },
    [PESC_OPTIONS_ESFT_SCORE] = { offsetof(options, score), sizeof(pesc_esft_score_options) },
    [PESC_OPTIONS_BENCHMARK] = { offsetof(options, benchmark), sizeof(pesc_benchmark_options) },
    [PESC_OPTIONS_SERVE] = { offsetof(options, serve), sizeof(pesc_serve_options) },
    [PESC_OPTIONS_ESFT_SELECT] = { offsetof(options, select), sizeof(pesc_esft_select_options) },
    [OPT_OWN] = { 0, 0 },
};
enum { N_STRUCTS = sizeof structs / sizeof *structs };
/* Letters of flags. A command has those whose key it takes as a flag; of two with one letter the
 * first. */
static const struct {
    char letter;
    const char *key;
} letters[] = {
    { 'c', "config" },  { 'd', "data" },       { 'h', "help" },   { 'n', "limit" },
    { 'n', "records" }, { 'n', "max_tokens" }, { 'o', "file" },   { 'o', "output" },
    { 'p', "prompt" },  { 'q', "quiet" },      { 's', "system" }, { 't', "temperature" },
};
enum { N_LETTERS = sizeof letters / sizeof *letters };

void *opt_struct(options *o, const pesc_option *row)
{
    return (char *)o + structs[row->of].at;
}

bool opt_lists(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == n && strncmp(p, word, n) == 0)
            return true;
    return false;
}

static bool opt_applies(const pesc_option *row, const command *c)
{
    return strcmp(row->commands, "*") == 0 || opt_lists(row->commands, c->name);
}

size_t opt_index(const pesc_option *row)
{
    size_t n;
    return (size_t)(row - opt_rows(&n));
}

const pesc_option *opt_next(const command *c, const pesc_option *row)
{
    size_t n;
    const pesc_option *rows = opt_rows(&n);
    for (row = row ? row + 1 : rows; row < rows + n; row++)
        if (opt_applies(row, c))
            return row;
    return NULL;
}

const char *opt_group_title(pesc_option_group group)
{
    static const char *const titles[] = {
#define TITLE(NAME, value, title) title,
        PESC_OPTION_GROUPS(TITLE)
    };
    return titles[group];
}

const pesc_option *opt_find(const command *c, const char *key)
{
    const pesc_option *r = opt_next(c, NULL);
    while (r && strcmp(r->key, key) != 0)
        r = opt_next(c, r);
    return r;
}

bool opt_given(const options *o, const char *key)
{
    const pesc_option *r = opt_find(o->cmd, key);
    return r && o->given[opt_index(r)];
}

static void replace_char(char *text, char from, char to)
{
    for (; *text; text++)
        *text = *text == from ? to : *text;
}

const char *opt_flag(opt_name out, const char *key)
{
    snprintf(out, sizeof(opt_name), "%s", key);
    replace_char(out, '_', '-');
    return out;
}

const char *opt_value(const pesc_option *row)
{
    static const char *const numbers[] = { [PESC_OPTION_INT] = "N",
                                           [PESC_OPTION_REAL] = "X",
                                           [PESC_OPTION_AUTO_INT] = "auto|N",
                                           [PESC_OPTION_AUTO_REAL] = "auto|X",
                                           [PESC_OPTION_LIST] = NULL };
    return row->values ? row->values : numbers[row->kind];
}

/* The row of a flag, its name written with dashes; n bytes of it. */
static const pesc_option *find_flag(const command *c, const char *word, size_t n)
{
    opt_name key;
    if (n >= sizeof key || memchr(word, '_', n))
        return NULL;
    snprintf(key, sizeof key, "%.*s", (int)n, word);
    replace_char(key, '-', '_');
    return opt_find(c, key);
}

static const pesc_option *find_letter(const command *c, char letter)
{
    for (size_t i = 0; i < N_LETTERS; i++) {
        const pesc_option *r = letters[i].letter == letter ? opt_find(c, letters[i].key) : NULL;
        if (r && !command_is_argument(c, r->key))
            return r;
    }
    return NULL;
}

char opt_letter(const pesc_option *row, const command *c)
{
    for (size_t i = 0; i < N_LETTERS; i++)
        if (strcmp(letters[i].key, row->key) == 0 && find_letter(c, letters[i].letter) == row)
            return letters[i].letter;
    return 0;
}

/* ---- values ---- */

pesc_status opt_own(options *o, char *text)
{
    char **more = text ? realloc(o->owned, (o->n_owned + 1) * sizeof *more) : NULL;
    if (!more) {
        free(text);
        return out_nomem("the options");
    }
    o->owned = more;
    more[o->n_owned++] = text;
    return PESC_OK;
}

static pesc_status append(options *o, const pesc_option *row, const char *text)
{
    char *base = opt_struct(o, row);
    const char ***items = (const char ***)(void *)(base + row->at);
    size_t *n = (size_t *)(void *)(base + row->count_at);
    const char **more = realloc((void *)*items, (*n + 1) * sizeof *more);
    if (!more)
        return out_nomem("the options");
    *items = more;
    more[(*n)++] = text;
    return PESC_OK;
}

pesc_status opt_set(options *o, const pesc_option *row, const char *text, const char *where)
{
    o->given[opt_index(row)] = true;
    if (row->kind != PESC_OPTION_LIST)
        return pesc_option_set(row, opt_struct(o, row), text, where);
    return text[0] ? append(o, row, text)
                   : out_fail(PESC_USAGE, "%s: found nothing, expected %s", where, row->values);
}

/* ---- the command line ---- */

typedef struct line {
    int argc, at;
    char **argv;
    int n_positional;
    const pesc_option *list; /* the flag before, when it takes a list: `--data a b` */
} line;

static pesc_status set_positional(options *o, line *l, const char *word)
{
    const command *c = o->cmd;
    const int max = sizeof c->keys / sizeof *c->keys;
    const char *key = l->n_positional < max ? c->keys[l->n_positional] : NULL;
    if (l->list && l->n_positional >= c->n_required)
        return opt_set(o, l->list, word, l->list->key);
    const pesc_option *last = l->n_positional ? opt_find(c, c->keys[l->n_positional - 1]) : NULL;
    if (!key && last && last->kind == PESC_OPTION_LIST) /* any number of them: `select a b c` */
        return opt_set(o, last, word, last->values);
    if (!key)
        return out_fail(PESC_USAGE, "%s: unexpected argument \"%s\"; usage: pesc %s %s", c->name,
                        word, c->name, c->synopsis);
    l->n_positional++;
    const pesc_option *r = opt_find(c, key);
    if (!word[0])
        return out_fail(PESC_USAGE, "%s: %s is empty; usage: pesc %s %s", c->name, r->values,
                        c->name, c->synopsis);
    return opt_set(o, r, word, r->values);
}

/* The value of a flag without "=": the next word. A boolean takes it only if it is one; other
 * flags refuse a word that is itself a flag of this command. */
static pesc_status next_value(const options *o, const pesc_option *r, line *l, const char **value)
{
    const char *next = l->at < l->argc ? l->argv[l->at] : NULL;
    opt_name flag;
    if (r->kind == PESC_OPTION_BOOL) {
        bool taken = next && (strcmp(next, "true") == 0 || strcmp(next, "false") == 0);
        l->at += taken;
        *value = taken ? next : "true";
        return PESC_OK;
    }
    if (!next || (strncmp(next, "--", 2) == 0 && find_flag(o->cmd, next + 2, strlen(next + 2))))
        return out_fail(PESC_USAGE, "%s: --%s needs a value: --%s %s", o->cmd->name,
                        opt_flag(flag, r->key), flag, opt_value(r));
    *value = next;
    l->at++;
    return PESC_OK;
}

/* --no-shuffle is --shuffle false. NULL: it is no such flag. */
static const pesc_option *find_negated(const command *c, const char *name, size_t n)
{
    const pesc_option *r =
        n > 3 && strncmp(name, "no-", 3) == 0 ? find_flag(c, name + 3, n - 3) : NULL;
    return r && r->kind == PESC_OPTION_BOOL ? r : NULL;
}

static pesc_status unknown_flag(const options *o, const char *word, size_t n)
{
    char where[96], name[64];
    bool is_long = word[1] == '-';
    snprintf(name, sizeof name, "%.*s", (int)(n < 60 ? n : 60), is_long ? word + 2 : "");
    snprintf(where, sizeof where, "%s: %.*s", o->cmd->name, (int)(n < 60 ? n : 60) + 2, word);
    return opt_unknown(o, name, where, OPT_AS_FLAG);
}

/* An empty value where a file or a name belongs is mostly a shell variable that is not set. To take
 * it for "none" would change the run without a word. */
static pesc_status set_flag(options *o, line *l, const char *word)
{
    bool is_long = word[1] == '-';
    const char *name = word + 2, *equals = is_long ? strchr(name, '=') : NULL;
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    const pesc_option *r = NULL, *negated = NULL;
    if (is_long)
        r = find_flag(o->cmd, name, n);
    else if (word[2] == '\0')
        r = find_letter(o->cmd, word[1]);
    if (!r && is_long && !equals)
        r = negated = find_negated(o->cmd, name, n);
    if (!r)
        return unknown_flag(o, word, n);
    char where[96];
    opt_name flag;
    const char *value = equals ? equals + 1 : negated ? "false" : NULL;
    l->list = r->kind == PESC_OPTION_LIST ? r : NULL;
    if (!value)
        TRY(next_value(o, r, l, &value));
    snprintf(where, sizeof where, "%s: --%s", o->cmd->name, opt_flag(flag, r->key));
    if (!value[0] && r->kind == PESC_OPTION_TEXT && strcmp(r->values, "TEXT") != 0)
        return out_fail(PESC_USAGE, "%s: found nothing, expected %s", where, r->values);
    if (strcmp(value, "-") == 0 && find_letter(o->cmd, 'o') == r) /* a file of that name */
        return out_fail(PESC_USAGE, "%s: found \"-\", expected %s, not standard output", where,
                        r->values);
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

/* ---- actions ---- */

/* Whether a text begins with the name of an action as the help of its options has it: "mix: ...",
 * "score, tasks: ...", "select --random: ...". */
static bool begins_with_action(const char *text, const char *action)
{
    size_t n = strlen(action);
    return strncmp(text, action, n) == 0 &&
           (text[n] == ':' || text[n] == ',' || strncmp(text + n, " --", 3) == 0);
}

/* Whether a clause of the help, "score: ...; select: ...", is about the action. */
static bool has_clause(const char *help, const char *action)
{
    bool found = begins_with_action(help, action);
    for (const char *p = help; !found && (p = strpbrk(p, ";,")) && p[1]; p++)
        found = begins_with_action(p + 2, action);
    return found;
}

static bool has_action(const options *o)
{
    const char *const *a = o->cmd->actions;
    while (*a && strcmp(*a, o->action) != 0)
        a++;
    return *a;
}

/* An option whose help begins with an action is one of the actions that the help names; for others
 * it would have no effect. */
static pesc_status check_action(const options *o)
{
    const char *const *actions = o->cmd->actions;
    opt_name flag;
    if (!actions || !o->action || !has_action(o))
        return PESC_OK;
    for (const pesc_option *r = NULL; (r = opt_next(o->cmd, r));) {
        bool special = false;
        if (!o->given[opt_index(r)] || command_is_argument(o->cmd, r->key))
            continue;
        for (size_t i = 0; actions[i]; i++)
            special = special || begins_with_action(r->help, actions[i]);
        if (special && !has_clause(r->help, o->action))
            return out_fail(PESC_USAGE, "%s %s: --%s has no effect here; %s", o->cmd->name,
                            o->action, opt_flag(flag, r->key), r->help);
    }
    return PESC_OK;
}

/* ---- everything together ---- */

/* A resumed run has its options in its directory. */
static pesc_status use_run(options *o)
{
    static const char name[] = "/run.yaml";
    size_t n = strlen(o->train.output);
    char *path = malloc(n + sizeof name);
    TRY(opt_own(o, path));
    memcpy(path, o->train.output, n);
    memcpy(path + n, name, sizeof name);
    if (access(path, R_OK) == 0)
        o->config = path;
    return PESC_OK;
}

static pesc_status set_defaults(options *o)
{
    for (const pesc_option *r = NULL; (r = opt_next(o->cmd, r));)
        if (r->fallback && !o->given[opt_index(r)]) {
            TRY(opt_set(o, r, r->fallback, r->key));
            o->given[opt_index(r)] = false;
        }
    return PESC_OK;
}

pesc_status opt_missing(const options *o, const char *what)
{
    const command *c = o->cmd;
    return out_fail(PESC_USAGE, "%s: %s is missing; usage: pesc %s %s", c->name, what, c->name,
                    c->synopsis);
}

/* "check, stats, inspect or mix" */
static void list_actions(char *out, size_t cap, const char *const *actions)
{
    size_t at = 0;
    for (size_t i = 0; actions[i] && at < cap; i++)
        at += (size_t)snprintf(out + at, cap - at, "%s%s",
                               i == 0           ? ""
                               : actions[i + 1] ? ", "
                                                : " or ",
                               actions[i]);
}

static pesc_status refuse_action(const options *o)
{
    const char *const *actions = o->cmd->actions;
    char all[96];
    size_t n = 0;
    while (actions[n])
        n++;
    list_actions(all, sizeof all, actions);
    const char *near = opt_nearest(o->action, actions, n);
    return out_fail(PESC_USAGE, "%s: found \"%s\", expected %s%s%s%s", o->cmd->name, o->action, all,
                    near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static pesc_status check_required(const options *o)
{
    const command *c = o->cmd;
    for (int i = 0; i < c->n_required; i++) {
        if (opt_given(o, c->keys[i]))
            continue;
        if (o->train.resume && o->train.output && !o->config)
            return out_fail(PESC_USAGE, "%s: has no run.yaml: there is no run to continue",
                            o->train.output);
        return opt_missing(o, opt_find(c, c->keys[i])->values);
    }
    return c->actions && !has_action(o) ? refuse_action(o) : PESC_OK;
}

pesc_status opt_parse(options *o, const command *c, int argc, char **argv)
{
    size_t n;
    (void)opt_rows(&n);
    *o = (options){ .cmd = c, .given = calloc(n, sizeof *o->given) };
    if (!o->given)
        return out_nomem("the options");
    for (int i = 0; i < N_STRUCTS; i++) /* of its own struct a command has only what it takes */
        if (i != OPT_OWN)
            pesc_options_fill((pesc_option_struct)i, (char *)o + structs[i].at, structs[i].size);
    TRY(parse_line(o, argc, argv));
    if (o->help)
        return PESC_OK;
    TRY(check_action(o)); /* a file may have the options of several actions */
    if (o->train.resume && o->train.output && !o->config)
        TRY(use_run(o));
    bool epochs = opt_given(o, "epochs") && !opt_given(o, "steps");
    if (o->config)
        TRY(opt_read_yaml(o));
    if (epochs) /* of the command line, against steps of the file, which would win over them */
        o->train.steps = 0;
    TRY(set_defaults(o));
    return check_required(o);
}

void opt_free(options *o)
{
    size_t n;
    const pesc_option *rows = opt_rows(&n);
    for (size_t i = 0; i < n; i++) {
        void **items = (void **)(void *)((char *)opt_struct(o, &rows[i]) + rows[i].at);
        if (rows[i].kind == PESC_OPTION_LIST) {
            free(*items);
            *items = NULL;
        }
    }
    for (size_t i = 0; i < o->n_owned; i++)
        free(o->owned[i]);
    free(o->owned);
    free(o->given);
    *o = (options){ 0 };
}
