#include "train/options.h"

#include "base/io.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ROW_AUTO: a whole number, -1 written as "auto". */
typedef enum row_kind {
    ROW_TEXT,
    ROW_CHOICE,
    ROW_INT,
    ROW_REAL,
    ROW_BOOL,
    ROW_LIST,
    ROW_AUTO
} row_kind;
/* Decides the numbers; only if the schedule has an end; names a file, written as an absolute path
 * so that run.yaml holds in any working directory. */
enum { NUMBERS = 1, LENGTH = 2, PATH = 4 };

typedef struct row {
    const char *key;
    row_kind kind;
    size_t at, count; /* count: of a list */
    unsigned flags;
    double min, max;
    const char *choices; /* "a|b" */
} row;

#define AT(f) offsetof(pesc_train_options, f)
#define HUGE_INT 9e15

/* clang-format off */
static const row rows[] = {
    { "output",           ROW_TEXT,   AT(output), 0, 0, 0, 0, NULL },
    { "method",           ROW_CHOICE, AT(method), 0, NUMBERS, 0, 0, "pesc|qlora|lora|full|upcycle|molora|esft" },
    { "experts_config",   ROW_TEXT,   AT(experts_config), 0, PATH, 0, 0, NULL },
    { "init_from",        ROW_TEXT,   AT(init_from), 0, PATH, 0, 0, NULL },
    { "seed",             ROW_INT,    AT(seed), 0, NUMBERS, 0, HUGE_INT, NULL },
    { "device",           ROW_TEXT,   AT(device), 0, 0, 0, 0, NULL },
    { "base_dtype",       ROW_CHOICE, AT(base_dtype), 0, NUMBERS, 0, 0, "f32|bf16|nf4" },
    { "double_quant",     ROW_BOOL,   AT(double_quant), 0, NUMBERS, 0, 0, NULL },
    { "compute_dtype",    ROW_CHOICE, AT(compute_dtype), 0, NUMBERS, 0, 0, "f32|bf16" },
    { "lora",             ROW_TEXT,   AT(lora), 0, PATH, 0, 0, NULL },
    { "experts",          ROW_INT,    AT(experts), 0, NUMBERS, 0, 65536, NULL },
    { "top_k",            ROW_INT,    AT(top_k), 0, NUMBERS, 0, 65536, NULL },
    { "adapter_dim",      ROW_INT,    AT(adapter_dim), 0, NUMBERS, 0, 1 << 20, NULL },
    { "adapter_scale",    ROW_REAL,   AT(adapter_scale), 0, NUMBERS, 0, 1e6, NULL },
    { "adapter_dropout",  ROW_REAL,   AT(adapter_dropout), 0, NUMBERS, 0, 0.99, NULL },
    { "aux_coef",         ROW_REAL,   AT(aux_coef), 0, NUMBERS, -1, 1e6, NULL },
    { "lora_r",           ROW_INT,    AT(lora_r), 0, NUMBERS, 0, 65536, NULL },
    { "lora_alpha",       ROW_REAL,   AT(lora_alpha), 0, NUMBERS, 0, 1e6, NULL },
    { "lora_dropout",     ROW_REAL,   AT(lora_dropout), 0, NUMBERS, 0, 0.99, NULL },
    { "lora_targets",     ROW_TEXT,   AT(lora_targets), 0, NUMBERS, 0, 0, NULL },
    { "data",             ROW_LIST,   AT(data), AT(n_data), PATH, 0, 0, NULL },
    { "eval_data",        ROW_LIST,   AT(eval_data), AT(n_eval_data), PATH, 0, 0, NULL },
    { "format",           ROW_TEXT,   AT(format), 0, NUMBERS, 0, 0, NULL },
    { "template",         ROW_TEXT,   AT(chat_template), 0, NUMBERS, 0, 0, NULL },
    { "over_length",      ROW_CHOICE, AT(over_length), 0, NUMBERS, 0, 0, "drop|truncate|split|error" },
    { "seq_len",          ROW_INT,    AT(seq_len), 0, NUMBERS, 2, 1 << 24, NULL },
    { "packing",          ROW_BOOL,   AT(packing), 0, NUMBERS, 0, 0, NULL },
    { "shuffle",          ROW_BOOL,   AT(shuffle), 0, NUMBERS, 0, 0, NULL },
    { "epochs",           ROW_REAL,   AT(epochs), 0, NUMBERS | LENGTH, 0, 1e6, NULL },
    { "steps",            ROW_INT,    AT(steps), 0, NUMBERS | LENGTH, 0, 2147483647, NULL },
    { "batch",            ROW_INT,    AT(batch), 0, NUMBERS, 1, 1 << 20, NULL },
    { "micro_tokens",     ROW_INT,    AT(micro_tokens), 0, NUMBERS, 0, 1 << 24, NULL },
    { "lr",               ROW_REAL,   AT(lr), 0, NUMBERS, 0, 1e30, NULL },
    { "schedule",         ROW_CHOICE, AT(schedule), 0, NUMBERS, 0, 0, "constant|cosine|linear" },
    { "warmup_steps",     ROW_INT,    AT(warmup_steps), 0, NUMBERS, -1, 2147483647, NULL },
    { "warmup_ratio",     ROW_REAL,   AT(warmup_ratio), 0, 0, 0, 1, NULL },
    { "clip",             ROW_REAL,   AT(clip), 0, NUMBERS, 0, 1e30, NULL },
    { "weight_decay",     ROW_REAL,   AT(weight_decay), 0, NUMBERS, 0, 1e6, NULL },
    { "beta1",            ROW_REAL,   AT(beta1), 0, NUMBERS, 0, 0.999999, NULL },
    { "beta2",            ROW_REAL,   AT(beta2), 0, NUMBERS, 0, 0.999999, NULL },
    { "eps",              ROW_REAL,   AT(eps), 0, NUMBERS, 1e-30, 1, NULL },
    { "optimizer",        ROW_CHOICE, AT(optimizer), 0, NUMBERS, 0, 0, "adamw|adamw8" },
    { "loss",             ROW_CHOICE, AT(loss), 0, NUMBERS, 0, 0, "token|sequence" },
    { "keep",             ROW_AUTO,   AT(keep), 0, 0, -1, 65536, NULL },
    { "save_every",       ROW_INT,    AT(save_every), 0, 0, 0, 2147483647, NULL },
    { "keep_checkpoints", ROW_INT,    AT(keep_checkpoints), 0, 0, 0, 1 << 20, NULL },
    { "eval_every",       ROW_INT,    AT(eval_every), 0, 0, 0, 2147483647, NULL },
    { "log_every",        ROW_INT,    AT(log_every), 0, 0, 0, 2147483647, NULL },
    { "verify_every",     ROW_INT,    AT(verify_every), 0, 0, 0, 2147483647, NULL },
};
/* clang-format on */

enum { N_ROWS = sizeof rows / sizeof *rows };

/* ---- presets ---- */

pesc_train_options pesc_train_defaults(void)
{
    return (pesc_train_options){
        .method = "pesc",
        .device = "cpu",
        .double_quant = true,
        .experts = 8,
        .top_k = 2,
        .adapter_dim = 512,
        .adapter_scale = 1,
        .adapter_dropout = 0.1,
        .aux_coef = -1,
        .lora_r = 64,
        .lora_alpha = 16,
        .lora_dropout = 0.1,
        .lora_targets = "all",
        .over_length = "drop",
        .seq_len = 2048,
        .packing = true,
        .shuffle = true,
        .epochs = 1,
        .batch = 128,
        .lr = 2e-4,
        .schedule = "constant",
        .warmup_steps = -1,
        .warmup_ratio = 0.03,
        .clip = 0.3,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .optimizer = "adamw",
        .loss = "token",
        .keep = -1,
        .save_every = 500,
        .keep_checkpoints = 2,
        .eval_every = 500,
        .log_every = 10,
        .verify_every = 200,
    };
}

/* The settings of ESFT's paper, for the method itself and the two it is compared with. */
static void esft_preset(pesc_train_options *o)
{
    o->lr = strcmp(o->method, "full") == 0 ? 3e-5 : strcmp(o->method, "lora") == 0 ? 1e-4 : 1e-5;
    o->lora_r = 8;
    o->lora_alpha = 16;
    o->lora_dropout = 0;
    o->aux_coef = 0;
    o->batch = 32;
    o->seq_len = 4096;
    o->warmup_steps = 0;
    o->clip = 1;
    o->weight_decay = 0.1;
    o->beta2 = 0.95;
    o->eval_every = 100;
}

pesc_status pesc_train_preset(pesc_train_options *o, const char *name)
{
    if (strcmp(name, "esft") == 0) {
        esft_preset(o);
        return PESC_OK;
    }
    if (strcmp(name, "paper") != 0 && strcmp(name, "published") != 0)
        return fail(PESC_USAGE, "preset: found \"%s\", expected paper, published or esft", name);
    pesc_train_options d = pesc_train_defaults();
    bool published = strcmp(name, "published") == 0;
    o->adapter_scale = published ? 0.25 : d.adapter_scale;
    o->aux_coef = published ? 0 : d.aux_coef;
    o->loss = published ? "sequence" : d.loss;
    o->packing = published ? false : d.packing;
    return PESC_OK;
}

void options_resolve(pesc_train_options *o)
{
    if (!o->base_dtype && strcmp(o->method, "qlora") == 0)
        o->base_dtype = "nf4";
    if (!o->compute_dtype || !*o->compute_dtype)
        o->compute_dtype = "f32";
}

bool options_train_experts(const pesc_train_options *o)
{
    return strcmp(o->method, "upcycle") == 0 || strcmp(o->method, "esft") == 0;
}

pesc_load_options pesc_train_load(const pesc_train_options *opt)
{
    pesc_train_options o = *opt;
    options_resolve(&o);
    return (pesc_load_options){ .base_dtype = o.base_dtype,
                                .compute_dtype = o.compute_dtype,
                                .double_quant = o.double_quant,
                                .whole_experts = options_train_experts(&o),
                                .lora_dir = o.lora };
}

/* ---- checking ---- */

static const char *text_of(const pesc_train_options *o, const row *r)
{
    return *(const char *const *)((const char *)o + r->at);
}

static const char *const *list_of(const pesc_train_options *o, const row *r, size_t *n)
{
    *n = *(const size_t *)((const char *)o + r->count);
    return *(const char *const *const *)((const char *)o + r->at);
}

static double number_of(const pesc_train_options *o, const row *r)
{
    const char *p = (const char *)o + r->at;
    return r->kind == ROW_REAL ? *(const double *)p : (double)*(const int64_t *)p;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *c = choices; c; c = strchr(c, '|')) {
        c += *c == '|';
        if (strncmp(c, text, n) == 0 && (c[n] == '|' || c[n] == '\0'))
            return true;
    }
    return false;
}

/* run.yaml is UTF-8, and must be able to name them. */
static pesc_status check_paths(const pesc_train_options *o, const row *r)
{
    const char *text = r->kind == ROW_TEXT ? text_of(o, r) : NULL;
    size_t n = text != NULL;
    const char *const *list = r->kind == ROW_LIST ? list_of(o, r, &n) : &text;
    for (size_t i = 0; i < n; i++)
        if (!utf8_valid(list[i], strlen(list[i])))
            return fail(PESC_USAGE, "%s: %s: is not UTF-8; rename it", r->key, list[i]);
    return PESC_OK;
}

static pesc_status check_row(const pesc_train_options *o, const row *r)
{
    const char *text = r->kind == ROW_CHOICE ? text_of(o, r) : NULL;
    if (text && *text && !is_choice(r->choices, text))
        return fail(PESC_USAGE, "%s: found \"%s\", expected %s", r->key, text, r->choices);
    if (r->kind != ROW_INT && r->kind != ROW_REAL && r->kind != ROW_AUTO)
        return PESC_OK;
    double v = number_of(o, r);
    if (!(v >= r->min && v <= r->max))
        return fail(PESC_USAGE, "%s: found %g, expected a number from %g to %g", r->key, v, r->min,
                    r->max);
    return PESC_OK;
}

pesc_status options_check(const pesc_train_options *o)
{
    for (int i = 0; i < N_ROWS; i++)
        TRY(check_row(o, &rows[i]));
    for (int i = 0; i < N_ROWS; i++)
        TRY(check_paths(o, &rows[i]));
    if (!o->output || !*o->output)
        return fail(PESC_USAGE, "output: is missing; give the directory of the run");
    if (!o->n_data)
        return fail(PESC_USAGE, "data: is missing; give at least one file to train on");
    if (o->resume && o->overwrite)
        return fail(PESC_USAGE, "resume and overwrite: found both; resume goes on with the run, "
                                "overwrite begins anew");
    if (o->steps == 0 && !(o->epochs > 0))
        return fail(PESC_USAGE, "epochs: found 0 and steps 0; one of them must say how long the "
                                "run is");
    return PESC_OK;
}

/* ---- writing ---- */

/* A JSON string is a YAML string. */
static void put_text(str *out, const char *text)
{
    json_t *v = json_string(text);
    json_put(out, v, 0);
    json_decref(v);
}

static void put_path(str *out, const char *path)
{
    char *full = NULL;
    put_text(out, io_absolute(&full, path) == PESC_OK ? full : path);
    mem_free(full);
}

static void put_list(str *out, const pesc_train_options *o, const row *r)
{
    size_t n;
    const char *const *list = list_of(o, r, &n);
    str_puts(out, "[");
    for (size_t i = 0; i < n; i++) {
        str_puts(out, i ? ", " : "");
        put_path(out, list[i]);
    }
    str_puts(out, "]");
}

/* The shortest text that reads back as the same number. */
static void put_real(str *out, double v)
{
    char text[40];
    double back = v - 1;
    for (int digits = 1; digits <= 17 && back != v; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (!str_to_f64(text, &back))
            back = v - 1;
    }
    str_puts(out, text);
}

static void put_value(str *out, const pesc_train_options *o, const row *r)
{
    switch (r->kind) {
    case ROW_TEXT:
    case ROW_CHOICE: {
        const char *text = text_of(o, r) ? text_of(o, r) : "";
        (*text && r->flags & PATH ? put_path : put_text)(out, text);
        break;
    }
    case ROW_INT:
        str_printf(out, "%lld", (long long)number_of(o, r));
        break;
    case ROW_AUTO:
        if (number_of(o, r) < 0)
            str_puts(out, "auto");
        else
            str_printf(out, "%lld", (long long)number_of(o, r));
        break;
    case ROW_REAL:
        put_real(out, number_of(o, r));
        break;
    case ROW_BOOL:
        str_puts(out, *(const bool *)((const char *)o + r->at) ? "true" : "false");
        break;
    case ROW_LIST:
        put_list(out, o, r);
        break;
    }
}

static bool is_absent(const pesc_train_options *o, const row *r)
{
    if (r->kind == ROW_LIST)
        return *(const size_t *)((const char *)o + r->count) == 0;
    bool text = r->kind == ROW_TEXT || r->kind == ROW_CHOICE;
    return text && (!text_of(o, r) || !*text_of(o, r));
}

void options_yaml(const pesc_train_options *o, const char *model, str *out)
{
    str_puts(out, "model: ");
    put_text(out, model);
    str_putc(out, '\n');
    for (int i = 0; i < N_ROWS; i++) {
        if (is_absent(o, &rows[i]))
            continue;
        str_printf(out, "%s: ", rows[i].key);
        put_value(out, o, &rows[i]);
        str_putc(out, '\n');
    }
}

uint64_t options_hash(const pesc_train_options *o)
{
    str s = { 0 };
    bool ends = strcmp(o->schedule, "constant") != 0;
    for (int i = 0; i < N_ROWS; i++) {
        const row *r = &rows[i];
        if (!(r->flags & NUMBERS) || (r->flags & LENGTH && !ends))
            continue;
        str_printf(&s, "%s=", r->key);
        put_value(&s, o, r);
        str_putc(&s, '\n');
    }
    uint64_t h = XXH3_64bits(s.p, s.n);
    str_free(&s);
    return h;
}

/* The value of a key, up to the end of its line; "" where it is absent. */
static const char *value_in(const char *yaml, const char *key, int *n)
{
    size_t len = strlen(key);
    *n = 0;
    for (const char *line = yaml; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, key, len) == 0 && strncmp(line + len, ": ", 2) == 0) {
            *n = (int)strcspn(line + len + 2, "\n");
            return line + len + 2;
        }
    return "";
}

void options_changed(const char *then, const char *now, char *out, size_t cap)
{
    *out = '\0';
    for (int i = 0, n, m; i < N_ROWS && !*out; i++) {
        const char *a = value_in(then, rows[i].key, &n), *b = value_in(now, rows[i].key, &m);
        if (rows[i].flags & NUMBERS && (n != m || strncmp(a, b, (size_t)n) != 0))
            snprintf(out, cap, "%s %.*s, now %.*s", rows[i].key, n ? n : 6, n ? a : "absent",
                     m ? m : 6, m ? b : "absent");
    }
}
