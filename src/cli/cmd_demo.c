/* cmd_demo: the main work flow, from end to end, on the embedded base.
 *
 * A dense model that was trained on plain text becomes a sparse mixture of experts; the dense, the
 * sparse and the upcycled model are tuned on the same instructions of three domains, and the sparse
 * one then on preferences; each answers held-out questions; and the routing of the experts is
 * shown. A step is a command line, which is printed and then run in this process; with --json its
 * result is an element of "steps". */
#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/show/progress.h"
#include "cli/opt/tune.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What the table shows of a model. */
typedef struct demo_row {
    const char *title; /* what the model is */
    const char *path;
    pesc_model_info info;
    pesc_eval_report report;
    pesc_pairs_report pairs;
    bool tuned; /* then these: */
    uint64_t params_trained, mem_bytes;
    int64_t steps;
    double first_loss, last_loss, tokens_per_second;
} demo_row;

/* The models of the table; tuned ones start from the base or from a crafted model. Each has the
 * learning rate that docs/study.md found for its method, and with share/tune.yaml that study's
 * batch; the one on preferences, a twentieth of that before it, for one epoch at most. */
static const struct model {
    const char *title, *name, *from, *method, *rate; /* from NULL: the base */
    const char *after; /* the tuned model that it begins with, on preferences; NULL: none */
} models[] = {
    { "dense base", NULL, NULL, NULL, NULL, NULL },
    { "dense tuned (Camel)", "camel", NULL, "lora", "8e-3", NULL },
    { "sparse tuned (Camelidae)", "camelidae", "sparse", "pesc", "4e-3", NULL },
    { "upcycled, tuned", "upcycled", "copies", "upcycle", "2e-3", NULL },
    { "sparse tuned, then DPO", "preferred", "sparse", "pesc", "2e-4", "camelidae" },
};
enum { N_MODELS = sizeof models / sizeof *models, SPARSE = 2 };

/* One held-out question of each domain. */
static const char *const questions[] = {
    "Where does Senbre live?",
    "Define h: it takes 9 from x, then negates it.",
    "Luvil has 4 apples, buys 2 and eats 3. How many are left?",
};

typedef char path[PATH_MAX];

typedef struct demo {
    const options *o;
    path base, recipe, train, test, pairs, held; /* the embedded files */
    path made[N_MODELS];                         /* the models of the table */
    demo_row rows[N_MODELS];
    bool colour;
} demo;

/* ---- the table ---- */

enum { NAME = 26, CELL = 8, MOST_ROWS = 8 };

/* The domains, then "all". */
static const pesc_eval_score *score_at(const pesc_eval_report *r, size_t i)
{
    return i < r->n_domains ? &r->domains[i] : &r->all;
}

static void print_quality(FILE *f, const demo_row *row)
{
    const pesc_eval_report *r = &row->report;
    fprintf(f, "%-*s", NAME, row->title);
    for (size_t i = 0; i <= r->n_domains; i++)
        fprintf(f, "%*.3f", CELL, score_at(r, i)->loss);
    fputs("  ", f);
    for (size_t i = 0; i <= r->n_domains; i++)
        fprintf(f, "%*.1f", CELL, 100 * score_at(r, i)->exact_match);
    fputc('\n', f);
}

/* What the table shows: the loss orders the tuned models; of so few questions exact match is only
 * known to about two standard errors of a difference. */
static void print_reading(FILE *f, const demo_row *rows, size_t n)
{
    double error = 0;
    bool named[MOST_ROWS] = { false };
    fputs("\nBy loss:", f);
    for (size_t k = 0; k < n && n <= MOST_ROWS; k++) {
        size_t least = n;
        for (size_t i = 0; i < n; i++)
            if (!named[i] && (least == n || rows[i].report.all.loss < rows[least].report.all.loss))
                least = i;
        named[least] = true;
        fprintf(f, "%s %s", k ? " <" : "", rows[least].title);
        error = fmax(error, 100 * rows[least].report.all.exact_match_stderr);
    }
    fprintf(
        f,
        ".\nExact match of all has a standard error of %.1f points: smaller differences than %.0f "
        "points say little.\n",
        error, ceil(2 * error));
}

static void print_cost(FILE *f, const demo_row *row)
{
    fprintf(f, "%-*s%*.2f%*.2f", NAME, row->title, CELL, (double)row->info.params_total * 1e-6,
            CELL + 2, (double)row->info.params_activated * 1e-6);
    if (row->tuned)
        fprintf(f, "%*.2f%*.0f%*.0f\n", CELL, (double)row->params_trained * 1e-6, CELL,
                (double)row->mem_bytes / (1 << 20), CELL + 2, row->tokens_per_second);
    else
        fprintf(f, "%*s%*s%*s\n", CELL, "-", CELL, "-", CELL + 2, "-");
}

static void print_domains(FILE *f, const pesc_eval_report *r)
{
    for (size_t i = 0; i <= r->n_domains; i++)
        fprintf(f, "%*s", CELL, i < r->n_domains ? r->domains[i].domain : "all");
}

/* Which answer each finds more likely, the right one or the wrong one. */
static void print_pairs(FILE *f, const demo_row *rows, size_t n)
{
    fprintf(f, "\n%-*s%*s%*s\n", NAME, "held-out pairs", 2 * CELL + 2, "right answer, %", 2 * CELL,
            "margin, nats");
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%-*s%*.1f%*.2f\n", NAME, rows[i].title, 2 * CELL + 2,
                100 * rows[i].pairs.accuracy, 2 * CELL, rows[i].pairs.margin);
}

/* By domain: exact match and loss; then pairs, and the cost of each. */
static void print_table(FILE *f, const demo_row *rows, size_t n)
{
    const pesc_eval_report *first = &rows[0].report;
    int width = CELL * ((int)first->n_domains + 1);
    fprintf(f, "%-*s%*s  %*s\n%-*s", NAME, "", width, "held-out loss, nats a token", width,
            "exact match, %", NAME, "");
    print_domains(f, first);
    fputs("  ", f);
    print_domains(f, first);
    fputc('\n', f);
    for (size_t i = 0; i < n; i++)
        print_quality(f, &rows[i]);
    print_reading(f, rows, n);
    print_pairs(f, rows, n);
    fprintf(f, "\n%-*s%*s%*s\n", NAME, "", 3 * CELL + 2, "parameters, M", 2 * CELL + 2, "tuning");
    fprintf(f, "%-*s%*s%*s%*s%*s%*s\n", NAME, "", CELL, "total", CELL + 2, "activated", CELL,
            "trained", CELL, "MiB", CELL + 2, "tokens/s");
    for (size_t i = 0; i < n; i++)
        print_cost(f, &rows[i]);
}

static void json_score(const char *key, const pesc_eval_score *s)
{
    out_begin(key, '{');
    if (s->domain)
        out_text("domain", s->domain);
    out_fields("records=%ld loss=%g exact_match=%g", s->records, s->loss, s->exact_match);
    out_end();
}

static void print_json(const demo_row *rows, size_t n)
{
    out_begin("models", '[');
    for (const demo_row *r = rows; r < rows + n; r++) {
        out_begin(NULL, '{');
        out_fields("name=%s path=%s params=%ld activated=%ld", r->title, r->path,
                   r->info.params_total, r->info.params_activated);
        if (r->tuned) {
            out_fields("params_trained=%ld mem_bytes=%ld steps=%ld first_loss=%g last_loss=%g "
                       "tokens_per_second=%.6g",
                       r->params_trained, r->mem_bytes, r->steps, r->first_loss, r->last_loss,
                       r->tokens_per_second);
        }
        out_begin("domains", '[');
        for (size_t i = 0; i < r->report.n_domains; i++)
            json_score(NULL, &r->report.domains[i]);
        out_end();
        json_score("all", &r->report.all);
        out_object("pairs", "pairs=%ld accuracy=%g margin=%g", r->pairs.pairs, r->pairs.accuracy,
                   r->pairs.margin);
        out_end();
    }
    out_end();
}

/* ---- the embedded files ---- */

static pesc_status join(path out, const char *dir, const char *name)
{
    if (snprintf(out, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path))
        return PESC_OK;
    return out_fail(PESC_USAGE, "demo: found a path of %zu bytes, expected a shorter one",
                    strlen(dir) + strlen(name) + 1);
}

static bool has_base(const char *dir)
{
    path config;
    return snprintf(config, sizeof config, "%s/base/config.json", dir) < (int)sizeof config &&
           access(config, R_OK) == 0;
}

/* $PESC_SHARE alone if it is set; else as installed, then as built. */
static pesc_status find_share(path out)
{
    static const char *const places[] = { "../share/pesc", "../share" };
    const char *given = getenv("PESC_SHARE");
    path self;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 32);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        slash[1] = '\0';
    for (size_t i = 0; !given && slash && i < sizeof places / sizeof *places; i++) {
        snprintf(out, sizeof(path), "%.*s%s", (int)sizeof(path) - 32, self, places[i]);
        if (has_base(out))
            return PESC_OK;
    }
    if (given && snprintf(out, sizeof(path), "%s", given) < (int)sizeof(path) && has_base(out))
        return PESC_OK;
    return out_fail(PESC_IO,
                    "demo: the embedded base is not in %s%s; set PESC_SHARE to the directory that "
                    "holds base/, train.jsonl, test.jsonl and tune.yaml (share/ of the sources)",
                    given ? given : self, given ? "" : "../share/pesc or ../share");
}

static pesc_status make_dirs(const char *dir)
{
    path part;
    size_t n = strlen(dir);
    if (n >= sizeof part)
        return join(part, dir, "");
    for (size_t i = 1; i <= n; i++) {
        if (dir[i] != '/' && dir[i] != '\0')
            continue;
        memcpy(part, dir, i);
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return out_fail(PESC_DISK, "%s: cannot be made: %s", part, strerror(errno));
    }
    return PESC_OK;
}

static pesc_status prepare(demo *d)
{
    path share;
    TRY(find_share(share));
    TRY(make_dirs(d->o->output));
    TRY(join(d->base, share, "base"));
    TRY(join(d->recipe, share, "tune.yaml"));
    TRY(join(d->train, share, "train.jsonl"));
    TRY(join(d->test, share, "test.jsonl"));
    TRY(join(d->pairs, share, "pairs.jsonl"));
    TRY(join(d->held, share, "pairs-test.jsonl"));
    for (size_t i = 0; i < N_MODELS; i++) {
        d->rows[i].title = models[i].title;
        d->rows[i].path = d->made[i];
        if (models[i].name)
            TRY(join(d->made[i], d->o->output, models[i].name));
        else
            memcpy(d->made[i], d->base, sizeof d->base);
    }
    return PESC_OK;
}

/* ---- steps ---- */

static void title(const demo *d, const char *text)
{
    if (!d->o->json)
        printf("\n%s%s%s\n", d->colour ? "\033[1m" : "", text, d->colour ? "\033[0m" : "");
}

enum { MAX_WORDS = 24 };

/* Prints a command line and parses it. Words end with NULL; --device and --threads of the demo are
 * added if the command takes them. For opt_free() even after a failure. */
static pesc_status parse_command(const demo *d, options *o, const char *const *words)
{
    const command *c;
    const char *line[MAX_WORDS];
    char threads[24];
    int n = 0;
    *o = (options){ 0 };
    TRY(command_find(words[0], &c));
    while (words[n + 1]) {
        line[n] = words[n + 1];
        n++;
    }
    if (opt_find(c, "device")) {
        snprintf(threads, sizeof threads, "--threads=%lld", (long long)d->o->threads);
        line[n++] = "--device";
        line[n++] = d->o->device;
        line[n++] = threads;
    }
    if (!d->o->json)
        printf("%s$ pesc", d->colour ? "\033[2m" : "");
    for (int i = 0; !d->o->json && words[i]; i++)
        printf(" %s", words[i]);
    if (!d->o->json)
        puts(d->colour ? "\033[0m" : "");
    fflush(stdout);
    TRY(opt_parse(o, c, n, (char **)line));
    o->json = d->o->json;
    o->quiet = d->o->quiet;
    return PESC_OK;
}

static pesc_status run_step(const demo *d, const char *const *words)
{
    options o;
    pesc_status st = parse_command(d, &o, words);
    if (st == PESC_OK)
        st = o.cmd->run(&o);
    opt_free(&o);
    return st;
}

static pesc_status craft(const demo *d, const char *name, const char *option, const char *value)
{
    path to;
    TRY(join(to, d->o->output, name));
    return run_step(d,
                    (const char *const[]){ "craft", d->base, "-o", to, "--overwrite", "--experts",
                                           "8", "--top-k", "2", option, value, NULL });
}

/* ---- tuning ---- */

static pesc_status run_steps(const demo *d, pesc_trainer *t, demo_row *row)
{
    pesc_step s = PESC_INIT(pesc_step);
    double began = progress_clock();
    enum { LINES = 4 };
    while (!pesc_trainer_done(t)) {
        TRY(pesc_trainer_step(t, &s));
        row->first_loss = s.step == 1 ? s.loss : row->first_loss;
        if (d->o->quiet || s.steps < LINES || s.step % (s.steps / LINES))
            continue;
        progress_clear();
        fprintf(stderr, "step %lld/%lld | loss %.4f\n", (long long)s.step, (long long)s.steps,
                s.loss);
    }
    row->steps = s.steps;
    row->last_loss = s.loss;
    row->mem_bytes = s.mem_bytes;
    row->tokens_per_second = (double)s.tokens / (progress_clock() - began);
    return pesc_plot_run(row->path);
}

static void print_tuned(const demo *d, const demo_row *row)
{
    out_number trained;
    if (d->o->json) {
        out_object(NULL, "output=%s steps=%ld loss=%g", row->path, row->steps, row->last_loss);
    } else {
        printf("%s: %s parameters trained, %lld steps, loss %.3f to %.3f\n", row->path,
               out_count(trained, row->params_trained), (long long)row->steps, row->first_loss,
               row->last_loss);
    }
}

static pesc_status tune(demo *d, size_t i)
{
    demo_row *row = &d->rows[i];
    options o;
    open_model m = { 0 };
    pesc_trainer *t = NULL;
    pesc_train_options p;
    pesc_train_info info = PESC_INIT(pesc_train_info);
    path from, after;
    char epochs[32];
    const struct model *how = &models[i];
    snprintf(epochs, sizeof epochs, "%g", how->after ? fmin(1, d->o->epochs) : d->o->epochs);
    TRY(join(from, d->o->output, how->from ? how->from : ""));
    TRY(join(after, d->o->output, how->after ? how->after : ""));
    pesc_status st = parse_command(
        d, &o, (const char *const[]){ "train",       how->from ? from : d->base,
                                      "-c",          d->recipe,
                                      "--data",      how->after ? d->pairs : d->train,
                                      "--method",    how->method,
                                      "--lr",        how->rate,
                                      "--epochs",    epochs,
                                      "-o",          row->path,
                                      "--overwrite", how->after ? "--objective" : NULL,
                                      "dpo",         "--init-from",
                                      after,         NULL });
    if (st == PESC_OK)
        st = tune_options(&o, &p);
    if (st == PESC_OK)
        st = open_for_training(&m, &o, &p, NULL);
    if (st == PESC_OK)
        st = pesc_trainer_open(&t, m.model, &p);
    if (st == PESC_OK) {
        pesc_trainer_describe(t, &info);
        row->tuned = true;
        row->params_trained = info.params_trained;
        st = run_steps(d, t, row);
    }
    if (st == PESC_OK)
        print_tuned(d, row);
    pesc_trainer_close(t);
    open_free(&m);
    opt_free(&o);
    return st;
}

/* ---- evaluation ---- */

static pesc_status open_made(const demo *d, size_t i, open_model *m, pesc_session **s)
{
    options o = *d->o;
    o.model = d->made[i];
    TRY(open_from(m, &o));
    return pesc_session_open(s, m->model, 0);
}

static pesc_status evaluate_model(demo *d, size_t i)
{
    open_model m = { 0 };
    pesc_session *s = NULL;
    pesc_eval_options e = pesc_eval_defaults();
    /* the base has no template of its own; all models get the same */
    e.chat_template = "camelidae";
    d->rows[i].report = PESC_INIT(pesc_eval_report);
    d->rows[i].pairs = PESC_INIT(pesc_pairs_report);
    d->rows[i].info = PESC_INIT(pesc_model_info);
    pesc_status st = open_made(d, i, &m, &s);
    if (st == PESC_OK)
        st = pesc_eval(s, d->test, &e, &d->rows[i].report);
    if (st == PESC_OK)
        st = pesc_eval_pairs(s, d->held, &e, &d->rows[i].pairs);
    if (st == PESC_OK)
        st = pesc_info(d->made[i], NULL, NULL, &d->rows[i].info);
    progress_clear();
    pesc_session_close(s);
    open_free(&m);
    return st;
}

static pesc_status write_table(const demo *d)
{
    path file;
    TRY(join(file, d->o->output, "table.txt"));
    FILE *f = fopen(file, "w");
    if (f)
        print_table(f, d->rows, N_MODELS);
    bool written = f && !ferror(f);
    if ((f && fclose(f) != 0) || !written)
        return out_fail(PESC_DISK, "%s: cannot be written: %s", file, strerror(errno));
    if (!d->o->json)
        print_table(stdout, d->rows, N_MODELS);
    return PESC_OK;
}

/* ---- a chat ---- */

static void print_answer(const demo *d, const char *question, const pesc_generation *g)
{
    const char *bold = d->colour ? "\033[1m" : "", *plain = d->colour ? "\033[0m" : "";
    if (d->o->json) {
        out_begin(NULL, '{');
        out_text("question", question);
        out_string("answer", g->text ? g->text : "", g->n_text);
        out_end();
        return;
    }
    printf("%syou%s    %s\n%smodel%s  ", bold, plain, question, bold, plain);
    for (size_t at = 0, n; at < g->n_text; at += n) {
        const char *end = memchr(g->text + at, '\n', g->n_text - at);
        n = end ? (size_t)(end - g->text) - at + 1 : g->n_text - at;
        out_write(g->text + at, n);
        if (end && at + n < g->n_text)
            fputs("       ", stdout);
    }
    putchar('\n');
}

static pesc_status ask(const demo *d, const open_model *m, pesc_session *s, const char *question)
{
    enum { MOST = 256 };
    int32_t ids[MOST];
    size_t n;
    pesc_generation g = PESC_INIT(pesc_generation);
    pesc_sample_options sampling = pesc_sample_defaults();
    const pesc_message message = { .role = "user", .content = question };
    sampling.max_tokens = 48;
    sampling.stop = pesc_model_chat_stops(m->model, &sampling.n_stop);
    TRY(pesc_chat_tokenize(m->model, NULL, &message, 1, ids, MOST, &n));
    pesc_status st = pesc_session_complete(s, ids, n < MOST ? n : MOST, &sampling, NULL, NULL, &g);
    if (st == PESC_OK)
        print_answer(d, question, &g);
    pesc_generation_free(&g);
    return st;
}

static pesc_status chat(const demo *d)
{
    open_model m = { 0 };
    pesc_session *s = NULL;
    pesc_status st = open_made(d, SPARSE, &m, &s);
    for (size_t i = 0; st == PESC_OK && i < sizeof questions / sizeof *questions; i++)
        st = ask(d, &m, s, questions[i]);
    pesc_session_close(s);
    open_free(&m);
    return st;
}

/* ---- the command ---- */

static pesc_status make_all(demo *d)
{
    title(d, "1. The embedded base: a dense Llama trained on plain text, without instructions");
    TRY(run_step(d, (const char *const[]){ "info", d->base, NULL }));
    title(
        d,
        "2. Craft: the same function, now with 8 adapters as experts in each layer, or 8 copies of "
        "each FFN");
    TRY(craft(d, "sparse", "--adapter-dim", "64"));
    TRY(craft(d, "copies", "--kind", "upcycle"));
    title(d, "3. Tune each on the same instructions, then the sparse one on pairs of answers");
    for (size_t i = 1; i < N_MODELS; i++)
        TRY(tune(d, i));
    title(d, "4. Ask held-out questions of each");
    for (size_t i = 0; i < N_MODELS; i++)
        TRY(evaluate_model(d, i));
    TRY(write_table(d));
    title(d, "5. Routing: which experts the tokens of each domain choose");
    return run_step(d, (const char *const[]){ "routes", d->made[SPARSE], "--data", d->test, "-o",
                                              d->o->output, NULL });
}

static pesc_status show(demo *d)
{
    double began = progress_clock();
    const char *dir = d->o->output;
    if (d->o->json) {
        out_begin(NULL, '{');
        out_text("output", dir);
        out_begin("steps", '[');
    }
    TRY(make_all(d));
    if (d->o->json) {
        out_end();
        print_json(d->rows, N_MODELS);
        out_begin("chat", '[');
    }
    title(d, "6. A short chat with the sparse model");
    TRY(chat(d));
    if (d->o->json) {
        out_end();
        out_measure("seconds", progress_clock() - began);
        out_end();
    } else {
        printf("\n%.0f s. Look at %s/plots/routing.png, %s/camelidae/plots/{loss,experts}.png; go "
               "on with\n  pesc chat %s/camelidae\n",
               progress_clock() - began, dir, dir, dir);
    }
    return PESC_OK;
}

pesc_status cmd_demo(const options *o)
{
    demo *d = calloc(1, sizeof *d);
    if (!d)
        return out_nomem("the demo");
    d->o = o;
    d->colour = isatty(STDOUT_FILENO);
    pesc_status st = prepare(d);
    if (st == PESC_OK)
        st = show(d);
    for (size_t i = 0; i < N_MODELS; i++)
        pesc_eval_free(&d->rows[i].report);
    free(d);
    return st;
}
