#include "craft/card.h"

#include "base/io.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "format/gguf.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define CARD "README.md"

/* ---- licences ---- */

static bool is_licence(char c)
{
    return isalnum((unsigned char)c) || c == '.' || c == '-';
}

/* The value of `license:` among the lines between the first two "---". */
static void from_card(const char *text, char out[CARD_LICENCE])
{
    static const char key[] = "license:";
    if (!str_starts(text, "---\n"))
        return;
    for (const char *line = text; (line = strchr(line, '\n')) && !str_starts(++line, "---");) {
        if (!str_starts(line, key))
            continue;
        size_t n = 0;
        for (line += sizeof key - 1; *line == ' ' || *line == '"' || *line == '\'';)
            line++;
        while (is_licence(line[n]) && n + 1 < CARD_LICENCE)
            n++;
        memcpy(out, line, n);
        out[n] = '\0';
        return;
    }
}

static pesc_status licence_of(const char *model, char out[CARD_LICENCE])
{
    enum { MAX_CARD = 1 << 20 };
    bool file = false;
    gguf *g = NULL;
    char *text = NULL, *path = NULL;
    size_t n;
    if (io_kind_of(model) == IO_FILE)
        TRY(gguf_is(model, &file));
    if (file) {
        TRY(gguf_open(&g, model));
        gguf_text_of(g, "general.license", out, CARD_LICENCE);
        gguf_close(g);
        out[strspn(out, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")] = '\0';
    }
    if (io_kind_of(model) != IO_DIR)
        return PESC_OK;
    TRY(io_find(&path, model, CARD));
    pesc_status s = path ? io_read_file(path, MAX_CARD, &text, &n) : PESC_OK;
    if (text)
        from_card(text, out);
    mem_free(text);
    mem_free(path);
    return s;
}

pesc_status card_licence(const source_model *from, char out[CARD_LICENCE])
{
    *out = '\0';
    for (size_t i = 0; i < from->chain.n && !*out; i++)
        TRY(licence_of(from->chain.dirs[i], out));
    return PESC_OK;
}

/* ---- text ---- */

/* The last part of a path, with what would end a cell of a table or a line replaced. */
static void put_name(str *out, const char *path, size_t n)
{
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t at = n;
    while (at > 0 && path[at - 1] != '/')
        at--;
    for (; at < n; at++)
        str_putc(out, strchr("|`\"\\<>\r\n\t", path[at]) ? '_' : path[at]);
}

static void put_row(str *out, const char *what, const char *value)
{
    if (*value)
        str_printf(out, "| %s | %s |\n", what, value);
}

static void put_count(str *out, const char *what, int64_t n)
{
    if (n > 0)
        str_printf(out, "| %s | %lld |\n", what, (long long)n);
}

static void put_real(str *out, const char *what, double x)
{
    if (isfinite(x))
        str_printf(out, "| %s | %.6g |\n", what, x);
}

static void put_model(str *out, const pesc_model_info *m)
{
    str_puts(out, "\n## Model\n\n| | |\n|---|---|\n");
    put_row(out, "family", m->family);
    put_count(out, "layers", m->layers);
    put_count(out, "width", m->dim);
    put_count(out, "context", m->context);
    put_count(out, "parameters", (int64_t)m->params_total);
    put_count(out, "activated for a token", (int64_t)m->params_activated);
    put_count(out, "experts of a layer", m->experts);
    put_count(out, "experts of a token", m->top_k);
    put_count(out, "width of an adapter", m->adapter_dim);
    put_row(out, "chat format", m->chat);
}

static void put_data(str *out, const char *list)
{
    json_t *files = json_loads(list, 0, NULL);
    const json_t *file;
    size_t i;
    if (json_array_size(files)) {
        str_puts(out, "| data | ");
        json_array_foreach(files, i, file)
        {
            const char *path = json_string_value(file) ? json_string_value(file) : "";
            str_puts(out, i ? ", " : "");
            put_name(out, path, strlen(path));
        }
        str_puts(out, " |\n");
    }
    json_decref(files);
}

static void put_run(str *out, const pesc_run_info *r)
{
    str_puts(out, "\n## Training\n\n| | |\n|---|---|\n| base | ");
    put_name(out, r->base, strlen(r->base));
    str_puts(out, " |\n");
    put_row(out, "method", r->method);
    put_data(out, r->data);
    put_row(out, "chat template", r->chat);
    put_row(out, "weights of the base held as", r->base_dtype);
    put_count(out, "rank of the LoRA", r->lora_r);
    str_printf(out, "| steps | %lld of %lld |\n", (long long)r->step, (long long)r->steps);
    put_count(out, "tokens", r->tokens);
    put_real(out, "learning rate at the end", r->lr);
    put_real(out, "training loss of the last step", r->loss);
    put_real(out, "validation loss", r->eval_loss);
    char best[64];
    snprintf(best, sizeof best, "best validation %s", r->metric_for_best_model);
    put_real(out, best, r->best_metric);
    put_count(out, "at step", r->best_step);
}

/* ---- the whole ---- */

static void put_head(str *out, const target_model *p, const char *licence, bool sparse)
{
    const runstate_chain *c = &p->from.chain;
    const char *base = c->dirs[c->n - 1];
    str_puts(out, "---\n");
    if (*licence)
        str_printf(out, "license: %s\n", licence);
    str_puts(out, "base_model: \"");
    put_name(out, base, strlen(base));
    str_printf(out, "\"\npipeline_tag: text-generation\ntags:\n- pesc\n%s---\n\n# ",
               sparse ? "- mixture-of-experts\n" : "");
    put_name(out, p->from.path, strlen(p->from.path));
    str_puts(out, "\n\nMade by pesc " PESC_VERSION " from `");
    put_name(out, p->from.path, strlen(p->from.path));
    str_puts(out, "`.\n");
}

static void put_licence(str *out, const target_model *p, const char *licence)
{
    const runstate_chain *c = &p->from.chain;
    str_puts(out, "\n## Licence\n\nThe base, `");
    put_name(out, c->dirs[c->n - 1], strlen(c->dirs[c->n - 1]));
    if (*licence)
        str_printf(out, "`, states the licence `%s`, which holds for what is made from it.\n",
                   licence);
    else
        str_puts(out, "`, states no licence in its files. Look it up where the base comes from "
                      "before this model is passed on.\n");
}

static pesc_status card_path(const target_model *p, char **out)
{
    static const char ending[] = ".gguf";
    const char *slash = strrchr(p->place, '/'), *name = slash ? slash + 1 : p->place;
    str text = { 0 };
    if (str_ends(name, ending)) {
        str_add(&text, name, strlen(name) - (sizeof ending - 1));
        str_putc(&text, '.');
    }
    str_puts(&text, CARD);
    *out = str_ok(&text) ? io_join(p->dir, text.p) : NULL;
    str_free(&text);
    return *out ? PESC_OK : fail_nomem(p->place, strlen(p->place));
}

pesc_status card_write(const target_model *p)
{
    char licence[CARD_LICENCE], *path = NULL;
    pesc_model_info model = PESC_INIT(pesc_model_info);
    pesc_run_info run = PESC_INIT(pesc_run_info);
    bool is_run = p->from.chain.n > 1;
    TRY(card_licence(&p->from, licence));
    TRY(pesc_info(p->from.path, p->from.base, NULL, &model));
    if (is_run)
        TRY(pesc_run_describe(p->from.path, NULL, &run));
    TRY(card_path(p, &path));
    str out = { 0 };
    put_head(&out, p, licence, model.experts > 0);
    put_model(&out, &model);
    if (is_run)
        put_run(&out, &run);
    put_licence(&out, p, licence);
    pesc_status s = str_ok(&out) ? io_write_file(path, out.p, out.n) : fail_nomem(path, out.n);
    str_free(&out);
    mem_free(path);
    return s;
}
