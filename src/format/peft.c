#include "format/peft.h"

#include "base/mem.h"
#include "base/str.h"
#include "format/peftfields.h"
#include "format/safetensors.h"
#include "format/torchbin.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

enum { MAX_CONFIG = 16 << 20, MAX_RANK = 1 << 20 };

static const char tail_a[] = ".lora_A.weight", tail_b[] = ".lora_B.weight";

typedef struct settings {
    json_t *json;
    char *file;
    int64_t r;
    double alpha;
    bool rslora;
} settings;

static pesc_status read_alpha(const settings *s, const char *key, const json_t *v, double *out)
{
    *out = json_number_value(v);
    if (!json_is_number(v) || !isfinite(*out) || *out <= 0)
        return fail(PESC_FORMAT, "%s: %s: found %s, expected a number above 0", s->file, key,
                    v ? json_is_number(v) ? "one that is not" : json_kind(v) : "nothing");
    return PESC_OK;
}

/* Its adapter is in its checkpoints. */
static bool is_run(const char *dir)
{
    char *file = io_join(dir, "run.json");
    bool run = file && io_kind_of(file) == IO_FILE;
    mem_free(file);
    return run;
}

static pesc_status read_settings(settings *s, const char *dir)
{
    s->file = io_join(dir, "adapter_config.json");
    if (!s->file)
        return fail_nomem(dir, strlen(dir));
    if (io_kind_of(s->file) == IO_NONE && is_run(dir))
        return fail(
            PESC_USAGE,
            "%s: is a run, expected a PEFT adapter; give %s/latest, or the run as the model", dir,
            dir);
    TRY(json_read_big(&s->json, s->file, MAX_CONFIG));
    if (!json_is_object(s->json))
        return fail(PESC_FORMAT, "%s: found %s, expected an object", s->file, json_kind(s->json));
    json_where at = { s->json, s->file };
    const char *type = NULL;
    TRY(json_get_str(at, "peft_type", true, &type));
    if (strcmp(type, "LORA") != 0)
        return fail(PESC_UNSUPPORTED,
                    "%s: peft_type: found %s; of PEFT's methods pesc applies LORA", s->file, type);
    TRY(peftfields_check(s->json, s->file));
    TRY(json_get_i64(at, "r", true, 1, MAX_RANK, &s->r));
    TRY(json_get_bool(at, "use_rslora", false, &s->rslora));
    return read_alpha(s, "lora_alpha", json_value(s->json, "lora_alpha"), &s->alpha);
}

static const char regular[] = "*+?()[]{}|$\\"; /* in a key: it is a regular expression */

/* Whether a pattern's key names the module: its last parts, or with '^' all of it. */
static bool names(const char *key, const char *module)
{
    if (*key == '^')
        return strcmp(key + 1, module) == 0;
    size_t n = strlen(key), m = strlen(module);
    return n <= m && strcmp(module + m - n, key) == 0 && (n == m || module[m - n - 1] == '.');
}

/* The first entry of rank_pattern or alpha_pattern that names the module, or NULL. */
static pesc_status pattern(const settings *s, const char *key, const char *module, json_t **out)
{
    json_t *map = json_object_get(s->json, key), *v;
    const char *name;
    *out = NULL;
    if (map && !json_is_null(map) && !json_is_object(map))
        return fail(PESC_FORMAT, "%s: %s: found %s, expected an object", s->file, key,
                    json_kind(map));
    json_object_foreach(map, name, v)
    {
        if (strpbrk(name, regular))
            return fail(PESC_UNSUPPORTED,
                        "%s: %s: \"%s\" is a regular expression; pesc reads module names", s->file,
                        key, name);
        if (!*out && names(name, module))
            *out = v;
    }
    return PESC_OK;
}

static pesc_status scale_of(const settings *s, const peft_lora *l, float *out)
{
    json_t *rank, *alpha;
    int64_t r = s->r;
    double a = s->alpha;
    TRY(pattern(s, "rank_pattern", l->module, &rank));
    TRY(pattern(s, "alpha_pattern", l->module, &alpha));
    if (rank) {
        r = json_integer_value(rank);
        if (!json_is_integer(rank) || r < 1 || r > MAX_RANK)
            return fail(PESC_FORMAT,
                        "%s: rank_pattern: the rank of %s is not a whole number from 1 to %d",
                        s->file, l->module, MAX_RANK);
    }
    if (alpha)
        TRY(read_alpha(s, "alpha_pattern", alpha, &a));
    if (l->a->nd != 2 || l->b->nd != 2 || l->a->ne[0] != r || l->b->ne[1] != r)
        return fail(PESC_SHAPE,
                    "%s: module %s: lora_A has %lld rows and lora_B %lld columns, expected the "
                    "rank %lld of adapter_config.json for both",
                    l->a->file, l->module, l->a->nd == 2 ? (long long)l->a->ne[0] : -1LL,
                    l->b->nd == 2 ? (long long)l->b->ne[1] : -1LL, (long long)r);
    *out = (float)(a / (s->rslora ? sqrt((double)r) : (double)r));
    return PESC_OK;
}

/* The weight called like `w` with its tail exchanged; NULL when absent. */
static const weight *sibling(const weights *ws, const weight *w, const char *tail,
                             const char *other)
{
    char name[WEIGHTS_MAX_NAME + 32];
    size_t stem = strlen(w->name) - strlen(tail);
    memcpy(name, w->name, stem);
    memcpy(name + stem, other, strlen(other) + 1);
    return weights_find(ws, name);
}

static bool floating(const weight *w)
{
    return w->dt == DT_F32 || w->dt == DT_BF16 || w->dt == DT_F16 || w->dt == DT_F64;
}

/* Whether a pattern may be of this parameter of a module that PEFT has wrapped. */
static bool has_pattern(const settings *s, const char *module, const char *parameter)
{
    static const char *const patterns[] = { "rank_pattern", "alpha_pattern" };
    static const char wrapped[] = ".base_layer";
    const char *dot = strrchr(parameter, '.'), *key;
    char name[WEIGHTS_MAX_NAME];
    size_t n = strlen(module);
    bool found = false;
    json_t *v;
    while (n >= sizeof wrapped &&
           strncmp(module + n - (sizeof wrapped - 1), wrapped, sizeof wrapped - 1) == 0)
        n -= sizeof wrapped - 1;
    snprintf(name, sizeof name, "%.*s.%s", (int)n, module, dot ? dot + 1 : parameter);
    for (size_t i = 0; i < 2; i++)
        json_object_foreach(json_object_get(s->json, patterns[i]), key, v)
        {
            found = found || strpbrk(key, regular) || names(key, name);
        }
    return found;
}

/* Of several experts at once: by target_parameters, with the rank of each. */
static bool on_parameter(const settings *s, const peft_lora *l)
{
    const json_t *list = json_object_get(s->json, "target_parameters"), *v;
    bool given = json_array_size(list) > 0;
    size_t i;
    json_array_foreach(list, i, v) given =
        given && json_is_string(v) && !has_pattern(s, l->module, json_string_value(v));
    return given && l->a->nd == 2 && l->b->nd == 2 && !l->a->read && l->a->ne[0] == l->b->ne[1] &&
           l->a->ne[0] > s->r && l->a->ne[0] % s->r == 0;
}

static pesc_status add_lora(peft *p, const settings *s, const weight *a)
{
    peft_lora *l = &p->loras[p->n];
    const weight *b = sibling(p->ws, a, tail_a, tail_b);
    size_t stem = strlen(a->name) - strlen(tail_a);
    if (!b)
        return fail(PESC_FORMAT, "%s: tensor %s: there is a lora_A without its lora_B", a->file,
                    a->name);
    if (!floating(a) || !floating(b))
        return fail(PESC_FORMAT, "%s: tensor %s: is stored as %s, expected f32, f16 or bf16",
                    a->file, a->name, dtype_name(floating(a) ? b->dt : a->dt));
    char *module = weights_take(p->ws, stem + 1);
    if (!module)
        return fail_nomem(a->file, stem + 1);
    memcpy(module, a->name, stem);
    *l = (peft_lora){ .module = module, .a = a, .b = b };
    if (on_parameter(s, l)) {
        l->stacked_rank = s->r;
        l->scale = (float)(s->alpha / (s->rslora ? sqrt((double)s->r) : (double)s->r));
        p->n++;
        return PESC_OK;
    }
    TRY(peftfields_selects(s->json, s->file, module));
    TRY(scale_of(s, l, &l->scale));
    p->n++;
    return PESC_OK;
}

static pesc_status pair_up(peft *p, const settings *s)
{
    size_t n = weights_count(p->ws);
    p->loras = mem_alloc(n, sizeof *p->loras);
    if (!p->loras)
        return fail_nomem(p->dir, n * sizeof *p->loras);
    for (size_t i = 0; i < n; i++) {
        const weight *w = weights_at(p->ws, i);
        if (str_ends(w->name, tail_a))
            TRY(add_lora(p, s, w));
        else if (!str_ends(w->name, tail_b))
            return fail(PESC_UNSUPPORTED,
                        "%s: tensor %s: is neither lora_A.weight nor lora_B.weight; pesc would not "
                        "apply it",
                        w->file, w->name);
        else if (!sibling(p->ws, w, tail_b, tail_a))
            return fail(PESC_FORMAT, "%s: tensor %s: there is a lora_B without its lora_A", w->file,
                        w->name);
    }
    if (!p->n)
        return fail(PESC_FORMAT, "%s: holds no lora_A and lora_B tensors", p->dir);
    bool wanted = json_array_size(json_object_get(s->json, "target_parameters")) > 0;
    for (size_t i = 0; wanted && i < p->n; i++)
        wanted = !p->loras[i].stacked_rank;
    return wanted ? fail(PESC_UNSUPPORTED,
                         "%s: target_parameters: pesc does not apply LoRA on parameters other than "
                         "the matrices of all experts of a layer, with one rank, and the adapter "
                         "has none there",
                         s->file)
                  : PESC_OK;
}

static pesc_status read_tensors(peft *p)
{
    static const struct {
        const char *name;
        pesc_status (*read)(weights *ws, const char *path);
    } files[] = {
        { "adapter_model.safetensors", safetensors_read },
        { "adapter_model.bin", torchbin_read },
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = io_join(p->dir, files[i].name);
        if (!path)
            return fail_nomem(p->dir, strlen(p->dir));
        bool there = io_kind_of(path) != IO_NONE;
        pesc_status s = there ? files[i].read(p->ws, path) : PESC_OK;
        mem_free(path);
        if (there)
            return s;
    }
    return fail(PESC_IO, "%s: has neither adapter_model.safetensors nor adapter_model.bin", p->dir);
}

static pesc_status copy_base(char **out, const settings *s)
{
    const char *base = NULL;
    *out = NULL;
    TRY(json_get_str((json_where){ s->json, s->file }, "base_model_name_or_path", false, &base));
    if (base && *base && !(*out = mem_strdup(base)))
        return fail_nomem(s->file, strlen(base));
    return PESC_OK;
}

static pesc_status build(peft *p, settings *s, const char *dir)
{
    p->dir = mem_strdup(dir);
    if (!p->dir)
        return fail_nomem(dir, strlen(dir));
    TRY(read_settings(s, dir));
    TRY(copy_base(&p->base, s));
    TRY(weights_new(&p->ws));
    TRY(read_tensors(p));
    return pair_up(p, s);
}

static void drop_settings(settings *s)
{
    json_decref(s->json);
    mem_free(s->file);
}

pesc_status peft_open(peft **out, const char *dir)
{
    settings s = { 0 };
    *out = NULL;
    peft *p = mem_zalloc(1, sizeof *p);
    if (!p)
        return fail_nomem(dir, sizeof *p);
    pesc_status st = build(p, &s, dir);
    drop_settings(&s);
    if (st != PESC_OK) {
        peft_close(p);
        return st;
    }
    *out = p;
    return PESC_OK;
}

void peft_close(peft *p)
{
    if (!p)
        return;
    weights_close(p->ws);
    mem_free(p->loras);
    mem_free(p->base);
    mem_free(p->dir);
    mem_free(p);
}

const peft_lora *peft_find(const peft *p, const char *name)
{
    size_t n = strlen(name) - strlen(".weight");
    for (size_t i = 0; i < p->n; i++)
        if (strncmp(p->loras[i].module, name, n) == 0 && !p->loras[i].module[n])
            return &p->loras[i];
    return NULL;
}

bool peft_fits(const peft_lora *l, const int64_t ne[2])
{
    return l->a->nd == 2 && l->b->nd == 2 && l->a->ne[1] == ne[1] && l->b->ne[0] == ne[0] &&
           l->a->ne[0] == l->b->ne[1];
}

pesc_status peft_check_fit(const peft *p, const peft_lora *l, const int64_t ne[2])
{
    return peft_fits(l, ne)
               ? PESC_OK
               : fail(PESC_SHAPE, "%s: the LoRA of %s does not fit its linear [%lld,%lld]", p->dir,
                      l->module, (long long)ne[0], (long long)ne[1]);
}

void peft_hash(const peft *p, char out[17])
{
    uint64_t h = weights_hash(p->ws);
    for (size_t i = 0; i < p->n; i++)
        h = XXH3_64bits_withSeed(&p->loras[i].scale, sizeof p->loras[i].scale, h);
    str_hex(out, h);
}

pesc_status peft_base(char **out, const char *dir)
{
    settings s = { 0 };
    *out = NULL;
    pesc_status st = read_settings(&s, dir);
    if (st == PESC_OK)
        st = copy_base(out, &s);
    drop_settings(&s);
    return st;
}
