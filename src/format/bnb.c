#include "format/bnb.h"

#include "base/mem.h"
#include "base/str.h"
#include "tensor/nf4.h"

#include <math.h>
#include <string.h>

static const char state_tail[] = ".quant_state.bitsandbytes__";

/* One group while it is put together. */
typedef struct group {
    weights *ws;
    unsigned char *drop; /* a byte an entry: it became part of another */
    const weight *state; /* the entry with the JSON */
    str name;            /* "...q_proj.weight", then with a tail */
    str where;           /* "FILE: name of the JSON", for messages */
    size_t stem;         /* bytes of the name without a tail */
    json_t *json;
    bnb_scales *scales;
} group;

static pesc_status bad(const group *g, const char *reason)
{
    return fail(PESC_FORMAT, "%s: tensor %.*s: %s", g->state->file, (int)g->stem, g->name.p,
                reason);
}

/* The entry called stem + tail, marked to go; NULL when absent. */
static const weight *part(group *g, const char *tail)
{
    g->name.n = g->stem;
    str_puts(&g->name, tail);
    const weight *w = str_ok(&g->name) ? weights_find(g->ws, g->name.p) : NULL;
    if (w)
        g->drop[w - weights_at(g->ws, 0)] = 1;
    return w;
}

static pesc_status need(group *g, const char *tail, dtype dt, int64_t elements, const weight **out)
{
    const weight *w = part(g, tail);
    if (!w)
        return fail(PESC_FORMAT, "%s: tensor %.*s: has no %s", g->state->file, (int)g->stem,
                    g->name.p, tail + 1);
    if (w->dt != dt || weights_elements(w) != elements)
        return fail(PESC_FORMAT, "%s: tensor %s: found %lld elements of %s, expected %lld of %s",
                    w->file, w->name, (long long)weights_elements(w), dtype_name(w->dt),
                    (long long)elements, dtype_name(dt));
    *out = w;
    return PESC_OK;
}

static int64_t blocks(int64_t n, int64_t block)
{
    return n / block + (n % block != 0);
}

/* The shape in the JSON; *elements its product. */
static pesc_status read_shape(const group *g, weight *w, int64_t *elements)
{
    const json_t *shape = json_object_get(g->json, "shape");
    size_t nd = json_array_size(shape);
    if (!json_is_array(shape) || nd == 0 || nd > WEIGHTS_MAX_DIMS)
        return bad(g, "quant_state: shape is not a list of 1 to 8 numbers");
    *elements = 1;
    for (size_t i = 0; i < nd; i++) {
        const json_t *d = json_array_get(shape, i);
        w->ne[i] = json_integer_value(d);
        if (!json_is_integer(d) || w->ne[i] < 1 ||
            __builtin_mul_overflow(*elements, w->ne[i], elements))
            return bad(g, "quant_state: shape holds something that is not a size");
    }
    w->nd = (int32_t)nd;
    return PESC_OK;
}

static pesc_status read_state(group *g, weight *w, int64_t *elements)
{
    json_where at = { g->json, g->where.p };
    const char *type = NULL;
    TRY(json_get_str(at, "quant_type", true, &type));
    if (strcmp(type, "nf4") != 0)
        return fail(PESC_UNSUPPORTED,
                    "%s: tensor %.*s: is quantised as %s; of bitsandbytes' formats pesc reads nf4",
                    g->state->file, (int)g->stem, g->name.p, type);
    TRY(read_shape(g, w, elements));
    TRY(json_get_i64(at, "blocksize", true, NF4_BLOCK, 1 << 20, &g->scales->block));
    if (g->scales->block % NF4_BLOCK)
        return bad(g, "quant_state: blocksize is not a multiple of 64");
    return PESC_OK;
}

static pesc_status check_map(group *g)
{
    const weight *map = NULL;
    float code[16];
    TRY(need(g, ".quant_map", DT_F32, 16, &map));
    TRY(weights_read_f32(map, 0, 16, code));
    for (int i = 0; i < 16; i++)
        if (!(fabsf(code[i] - nf4_code[i]) <= 1e-6f))
            return bad(g, "quant_map is not the 16 values of NF4");
    return PESC_OK;
}

/* Double quantisation: the scales themselves are 8-bit codes. */
static pesc_status read_nested(group *g, int64_t n_scales)
{
    bnb_scales *s = g->scales;
    json_where at = { g->json, g->where.p };
    const weight *absmax = NULL, *map = NULL;
    double offset = 0;
    TRY(json_get_i64(at, "nested_blocksize", true, 1, 1 << 20, &s->nested_block));
    TRY(json_get_f64(at, "nested_offset", true, &offset));
    TRY(need(g, ".nested_absmax", DT_F32, blocks(n_scales, s->nested_block), &absmax));
    TRY(need(g, ".nested_quant_map", DT_F32, 256, &map));
    TRY(weights_read_f32(map, 0, 256, s->nested_map));
    s->nested_absmax = absmax->data;
    s->offset = (float)offset;
    return PESC_OK;
}

/* Two codes a byte, whatever dtype the bytes are declared as (bnb_4bit_quant_storage). */
static pesc_status find_codes(group *g, int64_t elements, const weight **out)
{
    const weight *w = part(g, "");
    if (!w)
        return bad(g, "is missing, though its quant_state is there");
    if (w->bytes != (size_t)blocks(elements, 2) || w->dt == DT_NF4)
        return fail(PESC_FORMAT, "%s: tensor %s: holds %zu bytes of codes, expected %lld", w->file,
                    w->name, w->bytes, (long long)blocks(elements, 2));
    *out = w;
    return PESC_OK;
}

static pesc_status join_parts(group *g)
{
    weight w = { .dt = DT_NF4 };
    int64_t elements = 0, n_scales;
    const weight *codes = NULL, *absmax = NULL;
    g->scales = weights_take(g->ws, sizeof *g->scales);
    if (!g->scales)
        return fail_nomem(g->state->file, sizeof *g->scales);
    TRY(read_state(g, &w, &elements));
    TRY(check_map(g));
    TRY(find_codes(g, elements, &codes));
    n_scales = blocks(elements, g->scales->block);
    bool nested = json_has(g->json, "nested_offset");
    TRY(need(g, ".absmax", nested ? DT_U8 : DT_F32, n_scales, &absmax));
    if (nested)
        TRY(read_nested(g, n_scales));
    g->scales->absmax = absmax->data;
    size_t i = (size_t)(codes - weights_at(g->ws, 0));
    g->drop[i] = 0;
    w.name = codes->name;
    w.data = codes->data;
    w.bytes = codes->bytes;
    w.file = codes->file;
    w.scales = g->scales;
    *weights_edit(g->ws, i) = w;
    return PESC_OK;
}

static pesc_status join_group(weights *ws, unsigned char *drop, size_t i)
{
    enum { MAX_STATE = 4096 };
    group g = { .ws = ws, .drop = drop, .state = weights_at(ws, i) };
    const char *name = g.state->name, *tail = strstr(name, state_tail);
    g.stem = (size_t)(tail - name);
    str_add(&g.name, name, g.stem);
    str_printf(&g.where, "%s: %s", g.state->file, name);
    drop[i] = 1;
    pesc_status s;
    if (!str_ok(&g.name) || !str_ok(&g.where))
        s = fail_nomem(g.state->file, g.stem);
    else if (g.state->dt != DT_U8 || g.state->bytes > MAX_STATE)
        s = bad(&g, "quant_state is not a short JSON text");
    else
        s = json_parse(&g.json, (const char *)g.state->data, g.state->bytes, g.where.p);
    if (s == PESC_OK)
        s = join_parts(&g);
    json_decref(g.json);
    str_free(&g.name);
    str_free(&g.where);
    return s;
}

pesc_status bnb_group(weights *ws)
{
    size_t n = weights_count(ws), groups = 0;
    unsigned char *drop = mem_zalloc(n, 1);
    if (!drop)
        return fail_nomem("a table of weights", n);
    pesc_status s = PESC_OK;
    for (size_t i = 0; i < n && s == PESC_OK; i++) {
        const weight *w = weights_at(ws, i);
        if (str_ends(w->name, ".SCB") || str_ends(w->name, ".weight_format"))
            s = fail(PESC_UNSUPPORTED,
                     "%s: tensor %s: the checkpoint is quantised to 8 bits by bitsandbytes; pesc "
                     "reads its nf4 checkpoints",
                     w->file, w->name);
        else if (strstr(w->name, state_tail)) {
            s = join_group(ws, drop, i);
            groups++;
        }
    }
    if (s == PESC_OK && groups)
        weights_drop(ws, drop);
    mem_free(drop);
    return s;
}
