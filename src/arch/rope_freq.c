#include "arch/rope_freq.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    rope_kind kind;
} kinds[] = {
    { "default", ROPE_PLAIN },   { "linear", ROPE_LINEAR },
    { "llama3", ROPE_LLAMA3 },   { "yarn", ROPE_YARN },
    { "dynamic", ROPE_DYNAMIC }, { "longrope", ROPE_LONG },
    { "su", ROPE_LONG },         { "proportional", ROPE_PROPORTIONAL },
};

/* ---- reading ---- */

static pesc_status positive(json_where w, const char *key, bool required, float *out)
{
    double v = (double)*out;
    TRY(json_get_f64(w, key, required, &v));
    if (json_has(w.object, key) && (v <= 0 || v > 1e30))
        return fail(PESC_FORMAT, "%s: %s: found %g, expected a number above 0", w.file, key, v);
    *out = (float)v;
    return PESC_OK;
}

static pesc_status read_kind(rope_rule *r, json_where w)
{
    const char *name = "default";
    TRY(json_get_str(w, "type", false, &name));
    TRY(json_get_str(w, "rope_type", false, &name));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) {
            bool lists = kinds[i].kind == ROPE_YARN && json_has(w.object, "short_factor");
            r->kind = lists ? ROPE_LONG : kinds[i].kind; /* older files of Phi-3 */
            return PESC_OK;
        }
    return fail(
        PESC_UNSUPPORTED,
        "%s: rope_type: found \"%s\", expected default, linear, dynamic, llama3, yarn, longrope or "
        "proportional",
        w.file, name);
}

static pesc_status read_yarn(rope_rule *r, json_where w)
{
    double mscale = 0, all = 0;
    r->beta_fast = 32;
    r->beta_slow = 1;
    r->truncate = true;
    TRY(positive(w, "beta_fast", false, &r->beta_fast));
    TRY(positive(w, "beta_slow", false, &r->beta_slow));
    TRY(positive(w, "attention_factor", false, &r->attention_factor));
    TRY(json_get_bool(w, "truncate", false, &r->truncate));
    TRY(json_get_f64(w, "mscale", false, &mscale));
    TRY(json_get_f64(w, "mscale_all_dim", false, &all));
    r->mscale = (float)mscale;
    r->mscale_all = (float)all;
    return PESC_OK;
}

/* HunYuan's "dynamic" with an alpha is fixed: theta alpha^(D / (D - 2)). */
static pesc_status read_alpha(const config *c, rope_rule *r, json_where w)
{
    float alpha = 0;
    const int32_t dim = config_rot_dim(c);
    TRY(positive(w, "alpha", false, &alpha));
    if (alpha == 0 || dim < 4)
        return PESC_OK;
    r->kind = ROPE_PLAIN;
    r->theta = (float)((double)r->theta * pow((double)alpha, (double)dim / (dim - 2)));
    return PESC_OK;
}

/* A divisor for each pair, once for sequences of the original context and once for longer ones. */
static pesc_status read_factors(config *c, json_where w)
{
    static const char *const keys[] = { "short_factor", "long_factor" };
    const size_t pairs = (size_t)config_rot_dim(c) / 2;
    mem_free(c->rope_factors);
    c->rope_factors = mem_alloc(2 * pairs, sizeof *c->rope_factors);
    if (!c->rope_factors)
        return fail_nomem(w.file, 2 * pairs);
    for (size_t k = 0; k < 2; k++) {
        const json_t *list = json_value(w.object, keys[k]);
        if (!json_is_array(list) || json_array_size(list) != pairs)
            return fail(PESC_FORMAT, "%s: %s: found %s of %zu, expected an array of %zu numbers",
                        w.file, keys[k], json_kind(list), json_array_size(list), pairs);
        for (size_t i = 0; i < pairs; i++) {
            double v = json_number_value(json_array_get(list, i));
            if (!(v > 1e-6 && v < 1e30))
                return fail(PESC_FORMAT, "%s: %s[%zu]: expected a number above 0", w.file, keys[k],
                            i);
            c->rope_factors[k * pairs + i] = (float)v;
        }
    }
    return PESC_OK;
}

/* What all tables of a model share: which columns rotate. Of multimodal positions (mrope_section)
 * the three numbers of a text token are one, so nothing differs. */
static pesc_status read_partial(config *c, json_where w)
{
    double partial = c->rotary == 0 ? 1 : (double)c->rotary;
    TRY(json_get_f64(w, "partial_rotary_factor", false, &partial));
    if (c->rotary == 0 && partial != 1)
        return fail(PESC_UNSUPPORTED, "%s: partial_rotary_factor: found %g, expected 1", w.file,
                    partial);
    if (partial <= 0 || partial > 1)
        return fail(PESC_FORMAT, "%s: partial_rotary_factor: found %g, expected more than 0, to 1",
                    w.file, partial);
    c->rotary = c->rotary == 0 ? 0 : (float)partial;
    return PESC_OK;
}

/* The part of each head that rotates is that of a table. */
static pesc_status read_proportional(const config *c, rope_rule *r, json_where w)
{
    r->part = r->factor = 1;
    TRY(positive(w, "partial_rotary_factor", false, &r->part));
    TRY(positive(w, "factor", false, &r->factor));
    if (r->part > 1 || c->rotary != 0 || config_mla(c))
        return fail(PESC_UNSUPPORTED,
                    "%s: rope_type: found proportional with partial_rotary_factor %g, expected it "
                    "at most 1 and in a family whose heads rotate as a whole",
                    w.file, (double)r->part);
    return PESC_OK;
}

static pesc_status read_scaling(config *c, rope_rule *r, json_where w)
{
    int64_t original = r->original ? r->original : c->context;
    TRY(read_kind(r, w));
    TRY(positive(w, "rope_theta", false, &r->theta));
    if (r->kind == ROPE_PROPORTIONAL)
        return read_proportional(c, r, w);
    TRY(read_partial(c, w));
    if (c->q_scale_beta != 0)
        TRY(positive(w, "llama_4_scaling_beta", false, &c->q_scale_beta));
    if (r->kind == ROPE_PLAIN && c->q_scale_beta == 0)
        return PESC_OK;
    if (r->kind == ROPE_DYNAMIC && json_has(w.object, "alpha"))
        return read_alpha(c, r, w);
    if (!r->original)
        TRY(json_get_i64(w, "original_max_position_embeddings", c->q_scale_beta != 0, 1, 1 << 30,
                         &original));
    r->original = (int32_t)original;
    if (r->kind == ROPE_PLAIN)
        return PESC_OK;
    /* YaRN and longrope may leave the factor out: then it is the ratio of the contexts. */
    r->factor = (float)((double)c->context / (double)original);
    TRY(positive(w, "factor", r->kind != ROPE_YARN && r->kind != ROPE_LONG, &r->factor));
    if (r->kind == ROPE_LONG)
        TRY(read_factors(c, w));
    bool llama3 = r->kind == ROPE_LLAMA3;
    TRY(positive(w, "low_freq_factor", llama3, &r->low));
    TRY(positive(w, "high_freq_factor", llama3, &r->high));
    if (llama3 && r->high <= r->low)
        return fail(PESC_FORMAT,
                    "%s: high_freq_factor: found %g, expected more than %g, the "
                    "low_freq_factor",
                    w.file, (double)r->high, (double)r->low);
    return read_yarn(r, w);
}

/* One object for each layer type. */
static pesc_status read_by_type(config *c, const json_t *full, const json_t *sliding, json_where w)
{
    const json_t *of[] = { full ? full : sliding, sliding ? sliding : full };
    if (c->n_ropes == 1 && full && sliding && !json_equal(full, sliding))
        return fail(PESC_UNSUPPORTED,
                    "%s: rope_parameters: full and sliding layers rotate differently, which "
                    "pesc's %s does not",
                    w.file, c->family);
    for (int32_t i = 0; i < c->n_ropes; i++) {
        if (!json_is_object(of[i]))
            return fail(PESC_FORMAT,
                        "%s: rope_parameters: found %s for a layer type, expected an object",
                        w.file, json_kind(of[i]));
        TRY(read_scaling(c, &c->ropes[i], (json_where){ of[i], w.file }));
    }
    return PESC_OK;
}

pesc_status rope_read(config *c, json_where w)
{
    int64_t original = c->ropes[0].original;
    TRY(json_get_i64(w, "original_max_position_embeddings", false, 1, 1 << 30, &original));
    for (int32_t i = 0; i < c->n_ropes; i++)
        if (c->ropes[i].theta == 0)
            c->ropes[i].theta = 10000;
    c->ropes[0].original = (int32_t)original;
    TRY(positive(w, "rope_theta", false, &c->ropes[0].theta));
    if (c->n_ropes > 1)
        TRY(positive(w, "rope_local_base_freq", false, &c->ropes[1].theta));

    const char *key = json_has(w.object, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    const json_t *scaling = json_value(w.object, key);
    if (!scaling)
        return PESC_OK;
    if (!json_is_object(scaling))
        return fail(PESC_FORMAT, "%s: %s: found %s, expected an object", w.file, key,
                    json_kind(scaling));
    const json_t *full = json_value(scaling, "full_attention");
    const json_t *sliding = json_value(scaling, "sliding_attention");
    if (full || sliding)
        return read_by_type(c, full, sliding, w);
    return read_scaling(c, &c->ropes[0], (json_where){ scaling, w.file });
}

/* ---- computing ---- */

static float theta_of(const config *c, const rope_rule *r, int64_t length)
{
    if (r->kind != ROPE_DYNAMIC || length <= c->context)
        return r->theta;
    double dim = config_rot_dim(c), f = (double)r->factor;
    double stretch = f * (double)length / c->context - (f - 1);
    return (float)((double)r->theta * pow(stretch, dim / (dim - 2)));
}

/* The longest sequence that rotates as shorter ones do. */
static int32_t unstretched(const config *c)
{
    return c->ropes[0].kind == ROPE_LONG ? c->ropes[0].original : c->context;
}

int32_t rope_shareable(const config *c, int32_t length)
{
    if (!config_ropes_by_length(c))
        return INT32_MAX;
    return length <= unstretched(c) ? unstretched(c) : 0;
}

int64_t rope_length(const config *c, int64_t length)
{
    const int64_t most = unstretched(c);
    return length <= most ? most : c->ropes[0].kind == ROPE_LONG ? most + 1 : length;
}

bool rope_outgrown(const config *c, int64_t from, int64_t to)
{
    return c->ropes[0].kind == ROPE_LONG && rope_length(c, from) != rope_length(c, to);
}

static float llama3(const rope_rule *r, float inv)
{
    float wavelength = (float)(2 * M_PI) / inv;
    float low = (float)r->original / r->low;
    float high = (float)r->original / r->high;
    if (wavelength < high)
        return inv;
    if (wavelength > low)
        return inv / r->factor;
    float smooth = ((float)r->original / wavelength - r->low) / (r->high - r->low);
    return (1 - smooth) * inv / r->factor + smooth * inv;
}

/* The column at which a pair turns `rotations` times over the original context. */
static double yarn_column(const rope_rule *r, int32_t dim, double rotations)
{
    return dim * log(r->original / (rotations * 2 * M_PI)) / (2 * log((double)r->theta));
}

/* Pairs below column `low` keep their speed, pairs above `high` are slowed by the factor, a ramp
 * between. */
typedef struct yarn_range {
    double low, high;
} yarn_range;

static yarn_range yarn_columns(const rope_rule *r, int32_t dim)
{
    double low = yarn_column(r, dim, (double)r->beta_fast);
    double high = yarn_column(r, dim, (double)r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, dim - 1);
    return (yarn_range){ low, low == high ? high + 0.001 : high };
}

static float yarn(float factor, yarn_range r, int32_t i, float power)
{
    float ramp = ((float)i - (float)r.low) / (float)(r.high - r.low);
    float keep = 1 - fminf(fmaxf(ramp, 0), 1);
    return 1.0F / (factor * power) * (1 - keep) + 1.0F / power * keep;
}

int32_t rope_turning(const rope_rule *r, int32_t dim)
{
    return (int32_t)((double)r->part * dim / 2 + 1e-6);
}

void rope_frequencies(const config *c, int32_t table, int64_t length, float *out)
{
    const rope_rule *r = &c->ropes[table];
    int32_t dim = config_rope_dim(c, table);
    const int32_t turning = rope_turning(r, dim);
    float theta = theta_of(c, r, length);
    yarn_range range = r->kind == ROPE_YARN ? yarn_columns(r, dim) : (yarn_range){ 0 };
    for (int32_t i = 0; i < dim / 2; i++) {
        float power = powf(theta, (float)(2 * i) / (float)dim), inv = 1.0F / power;
        switch (r->kind) {
        case ROPE_LINEAR:
            inv /= r->factor;
            break;
        case ROPE_LLAMA3:
            inv = llama3(r, inv);
            break;
        case ROPE_PROPORTIONAL:
            inv = i < turning ? inv / r->factor : 0;
            break;
        case ROPE_YARN:
            inv = yarn(r->factor, range, i, power);
            break;
        case ROPE_LONG:
            inv = 1.0F / (c->rope_factors[length > r->original ? dim / 2 + i : i] * power);
            break;
        case ROPE_PLAIN:
        case ROPE_DYNAMIC:
            break;
        }
        out[i] = inv;
    }
}

static double mscale(double factor, double scale)
{
    return factor <= 1 ? 1 : 0.1 * scale * log(factor) + 1;
}

float rope_table_scale(const rope_rule *r)
{
    double f = (double)r->factor;
    if (r->kind != ROPE_YARN && r->kind != ROPE_LONG)
        return 1;
    if (r->attention_factor > 0)
        return r->attention_factor;
    if (r->kind == ROPE_LONG)
        return f <= 1 ? 1 : (float)sqrt(1 + log(f) / log(r->original));
    if (r->mscale != 0 && r->mscale_all != 0)
        return (float)(mscale(f, (double)r->mscale) / mscale(f, (double)r->mscale_all));
    return (float)mscale(f, 1);
}

float rope_attention_scale(const config *c)
{
    const rope_rule *r = &c->ropes[0];
    double width = c->attn_width != 0 ? (double)c->attn_width : config_qk_dim(c);
    double scale = c->attn_scale != 0 ? (double)c->attn_scale : 1 / sqrt(width);
    if (config_mla(c) && r->kind != ROPE_PLAIN && r->mscale_all != 0) {
        double m = mscale((double)r->factor, (double)r->mscale_all);
        scale *= m * m;
    }
    return (float)scale;
}

float rope_query_scale(const config *c, int32_t pos)
{
    return 1 + c->q_scale_beta * logf(1 + (float)(pos / c->ropes[0].original));
}
