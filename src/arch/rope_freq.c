#include "arch/rope_freq.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    rope_kind kind;
} kinds[] = {
    { "default", ROPE_PLAIN }, { "linear", ROPE_LINEAR },   { "llama3", ROPE_LLAMA3 },
    { "yarn", ROPE_YARN },     { "dynamic", ROPE_DYNAMIC },
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

static pesc_status read_kind(config *c, json_where w)
{
    const char *name = "default";
    TRY(json_get_str(w, "type", false, &name));
    TRY(json_get_str(w, "rope_type", false, &name));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) {
            c->rope = kinds[i].kind;
            return PESC_OK;
        }
    return fail(PESC_UNSUPPORTED,
                "%s: rope_type: found \"%s\", expected default, linear, dynamic, llama3 or yarn",
                w.file, name);
}

static pesc_status read_scaling(config *c, json_where w)
{
    double partial = 1;
    int64_t original = c->rope_original ? c->rope_original : c->context;
    TRY(read_kind(c, w));
    TRY(positive(w, "rope_theta", false, &c->rope_theta));
    TRY(json_get_f64(w, "partial_rotary_factor", false, &partial));
    if (partial != 1)
        return fail(PESC_UNSUPPORTED, "%s: partial_rotary_factor: found %g, expected 1", w.file,
                    partial);
    if (json_has(w.object, "mrope_section"))
        return fail(PESC_UNSUPPORTED, "%s: mrope_section: multimodal rotation is not supported",
                    w.file);
    if (c->rope == ROPE_PLAIN)
        return PESC_OK;
    if (!c->rope_original)
        TRY(json_get_i64(w, "original_max_position_embeddings", false, 1, 1 << 30, &original));
    c->rope_original = (int32_t)original;
    /* YaRN may leave its factor out: then it is the ratio of the contexts. */
    c->rope_factor = (float)((double)c->context / (double)original);
    TRY(positive(w, "factor", c->rope != ROPE_YARN, &c->rope_factor));
    bool llama3 = c->rope == ROPE_LLAMA3;
    TRY(positive(w, "low_freq_factor", llama3, &c->rope_low));
    TRY(positive(w, "high_freq_factor", llama3, &c->rope_high));
    if (llama3 && c->rope_high <= c->rope_low)
        return fail(PESC_FORMAT,
                    "%s: high_freq_factor: found %g, expected more than %g, the "
                    "low_freq_factor",
                    w.file, (double)c->rope_high, (double)c->rope_low);
    c->rope_beta_fast = 32;
    c->rope_beta_slow = 1;
    c->rope_truncate = true;
    TRY(positive(w, "beta_fast", false, &c->rope_beta_fast));
    TRY(positive(w, "beta_slow", false, &c->rope_beta_slow));
    TRY(positive(w, "attention_factor", false, &c->rope_attention_factor));
    TRY(json_get_bool(w, "truncate", false, &c->rope_truncate));
    double mscale = 0, all = 0;
    TRY(json_get_f64(w, "mscale", false, &mscale));
    TRY(json_get_f64(w, "mscale_all_dim", false, &all));
    c->rope_mscale = (float)mscale;
    c->rope_mscale_all = (float)all;
    return PESC_OK;
}

/* rope_parameters may hold one object for each layer type. pesc has one table for all layers, so
 * they must say the same. */
static pesc_status same_for_all(const json_t **scaling, const char *file)
{
    const json_t *full = json_value(*scaling, "full_attention");
    const json_t *sliding = json_value(*scaling, "sliding_attention");
    if (!full && !sliding)
        return PESC_OK;
    if (full && sliding && !json_equal(full, sliding))
        return fail(PESC_UNSUPPORTED,
                    "%s: rope_parameters: full and sliding layers rotate differently, which is not "
                    "supported",
                    file);
    *scaling = full ? full : sliding;
    return PESC_OK;
}

pesc_status rope_read(config *c, json_where w)
{
    if (c->rope_theta == 0)
        c->rope_theta = 10000;
    TRY(positive(w, "rope_theta", false, &c->rope_theta));
    int64_t original = 0;
    TRY(json_get_i64(w, "original_max_position_embeddings", false, 1, 1 << 30, &original));
    c->rope_original = (int32_t)original;

    const char *key = json_has(w.object, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    const json_t *scaling = json_value(w.object, key);
    if (!scaling)
        return PESC_OK;
    if (!json_is_object(scaling))
        return fail(PESC_FORMAT, "%s: %s: found %s, expected an object", w.file, key,
                    json_kind(scaling));
    TRY(same_for_all(&scaling, w.file));
    if (!json_is_object(scaling))
        return fail(PESC_FORMAT, "%s: %s: found %s for a layer type, expected an object", w.file,
                    key, json_kind(scaling));
    return read_scaling(c, (json_where){ scaling, w.file });
}

/* ---- computing ---- */

static float theta_of(const config *c, int64_t length)
{
    if (c->rope != ROPE_DYNAMIC || length <= c->context)
        return c->rope_theta;
    double dim = config_rot_dim(c), f = (double)c->rope_factor;
    double stretch = f * (double)length / c->context - (f - 1);
    return (float)((double)c->rope_theta * pow(stretch, dim / (dim - 2)));
}

int32_t rope_shareable(const config *c, int32_t length)
{
    if (c->rope != ROPE_DYNAMIC)
        return INT32_MAX;
    return length <= c->context ? c->context : 0;
}

static float llama3(const config *c, float inv)
{
    float wavelength = (float)(2 * M_PI) / inv;
    float low = (float)c->rope_original / c->rope_low;
    float high = (float)c->rope_original / c->rope_high;
    if (wavelength < high)
        return inv;
    if (wavelength > low)
        return inv / c->rope_factor;
    float smooth =
        ((float)c->rope_original / wavelength - c->rope_low) / (c->rope_high - c->rope_low);
    return (1 - smooth) * inv / c->rope_factor + smooth * inv;
}

/* The column at which a pair turns `rotations` times over the original context. */
static double yarn_column(const config *c, double rotations)
{
    return config_rot_dim(c) * log(c->rope_original / (rotations * 2 * M_PI)) /
           (2 * log((double)c->rope_theta));
}

/* Pairs below column `low` keep their speed, pairs above `high` are slowed by the factor, a ramp
 * between. */
typedef struct yarn_range {
    double low, high;
} yarn_range;

static yarn_range yarn_columns(const config *c)
{
    double low = yarn_column(c, (double)c->rope_beta_fast);
    double high = yarn_column(c, (double)c->rope_beta_slow);
    if (c->rope_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, config_rot_dim(c) - 1);
    return (yarn_range){ low, low == high ? high + 0.001 : high };
}

static float yarn(const config *c, yarn_range r, int32_t i, float power)
{
    float ramp = ((float)i - (float)r.low) / (float)(r.high - r.low);
    float keep = 1 - fminf(fmaxf(ramp, 0), 1);
    return 1.0F / (c->rope_factor * power) * (1 - keep) + 1.0F / power * keep;
}

void rope_frequencies(const config *c, int64_t length, float *out)
{
    int32_t dim = config_rot_dim(c);
    float theta = theta_of(c, length);
    yarn_range range = c->rope == ROPE_YARN ? yarn_columns(c) : (yarn_range){ 0 };
    for (int32_t i = 0; i < dim / 2; i++) {
        float power = powf(theta, (float)(2 * i) / (float)dim), inv = 1.0F / power;
        switch (c->rope) {
        case ROPE_LINEAR:
            inv /= c->rope_factor;
            break;
        case ROPE_LLAMA3:
            inv = llama3(c, inv);
            break;
        case ROPE_YARN:
            inv = yarn(c, range, i, power);
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

float rope_table_scale(const config *c)
{
    double f = (double)c->rope_factor;
    if (c->rope != ROPE_YARN)
        return 1;
    if (c->rope_attention_factor > 0)
        return c->rope_attention_factor;
    if (c->rope_mscale != 0 && c->rope_mscale_all != 0)
        return (float)(mscale(f, (double)c->rope_mscale) / mscale(f, (double)c->rope_mscale_all));
    return (float)mscale(f, 1);
}

float rope_attention_scale(const config *c)
{
    double scale = 1 / sqrt(config_qk_dim(c));
    if (config_mla(c) && c->rope != ROPE_PLAIN && c->rope_mscale_all != 0) {
        double m = mscale((double)c->rope_factor, (double)c->rope_mscale_all);
        scale *= m * m;
    }
    return (float)scale;
}
