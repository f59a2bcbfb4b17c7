/* How a GGUF file stretches RoPE, in the words of config.json's rope_scaling. */
#include "format/gguf_file.h"

#include <math.h>
#include <string.h>

static pesc_status scaling_real(const gguf *g, const gguf_arch *a, const char *key, double *out)
{
    return gguf_get_real(g, gguf_arch_key(a, key).text, false, out);
}

static pesc_status put_factor(json_t *scaling, const gguf *g, const gguf_arch *a, const char *key)
{
    double factor = 1.0;
    TRY(scaling_real(g, a, key, &factor));
    if (!(factor > 0))
        return fail(PESC_FORMAT, "%s: %s.%s: found %g, expected more than 0", g->path, a->name, key,
                    factor);
    return gguf_config_put(scaling, "factor", json_real(factor));
}

/* ---- yarn ---- */

/* Knobs of llama.cpp that Hugging Face does not have must have their neutral value. */
static pesc_status refuse_knobs(const gguf *g, const gguf_arch *a)
{
    static const char *const knobs[] = { "rope.scaling.attn_factor",
                                         "rope.scaling.yarn_attn_factor",
                                         "rope.scaling.yarn_ext_factor" };
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++) {
        double x = 1.0;
        TRY(scaling_real(g, a, knobs[i], &x));
        if (x != 1.0)
            return fail(PESC_UNSUPPORTED, "%s: %s.%s: found %g, expected 1", g->path, a->name,
                        knobs[i], x);
    }
    return PESC_OK;
}

static pesc_status put_yarn(json_t *scaling, const gguf *g, const gguf_arch *a)
{
    int64_t original = 0;
    double fast = 32.0, slow = 1.0, log_multiplier = 0.0;
    gguf_range r = { .required = true, .min = 1, .max = INT32_MAX };
    gguf_key key = gguf_arch_key(a, "rope.scaling.original_context_length");
    TRY(refuse_knobs(g, a));
    TRY(put_factor(scaling, g, a, "rope.scaling.factor"));
    TRY(gguf_get_int(g, key.text, r, &original));
    TRY(gguf_config_put(scaling, "original_max_position_embeddings", json_integer(original)));
    TRY(scaling_real(g, a, "rope.scaling.yarn_beta_fast", &fast));
    TRY(scaling_real(g, a, "rope.scaling.yarn_beta_slow", &slow));
    TRY(gguf_config_put(scaling, "beta_fast", json_real(fast)));
    TRY(gguf_config_put(scaling, "beta_slow", json_real(slow)));
    TRY(scaling_real(g, a, "rope.scaling.yarn_log_multiplier", &log_multiplier));
    if (a->bit == ARCH_GPTOSS) /* as the files of this model say, where GGUF has no key */
        TRY(gguf_config_put(scaling, "truncate", json_false()));
    if (a->bit == ARCH_MISTRAL3) {
        double beta = 0;
        TRY(scaling_real(g, a, "attention.temperature_scale", &beta));
        TRY(gguf_config_put(scaling, "llama_4_scaling_beta", json_real(beta)));
    }
    if (log_multiplier == 0.0)
        return PESC_OK;
    if (!(a->bit & (ARCH_DEEPSEEK2 | ARCH_MISTRAL3)))
        return fail(PESC_UNSUPPORTED,
                    "%s: %s.rope.scaling.yarn_log_multiplier: found %g, expected 0", g->path,
                    a->name, log_multiplier);
    /* 0.1 * mscale_all_dim, of Mistral that itself; of DeepSeek's two scales only that one is kept,
     * and they are equal. */
    double all = a->bit == ARCH_DEEPSEEK2 ? 10 * log_multiplier : log_multiplier;
    TRY(gguf_config_put(scaling, "mscale", json_real(all)));
    return gguf_config_put(scaling, "mscale_all_dim", json_real(all));
}

/* ---- llama 3 ----
 *
 * llama.cpp stores not the rule but its result: for each pair i of a head the factor f_i by which
 * its frequency is divided. With x_i = 1 / wavelength and old = original_max_position_embeddings
 *
 *     1 / f = (1 - s) / factor + s,   s = (old x - low) / (high - low) cut to [0, 1]
 *
 * so factor is f of the slowest pair, and only old / low and old / high matter: low may be taken as
 * 1. s is linear in x, so two pairs with 0 < s < 1 give old and high. Where fewer are between, any
 * rule that gives the same factors is the same model: the published ones (high 4, old a power of
 * two) are tried first. A rule counts only when it gives back every factor of the file. */

typedef struct llama3 {
    double factor, high, old; /* low = 1 */
} llama3;

static float factor_at(const gguf_tensor *t, int64_t i)
{
    float f;
    memcpy(&f, t->data + (size_t)i * sizeof f, sizeof f);
    return f;
}

static double inverse_wavelength(double theta, int64_t i, int64_t pairs)
{
    return pow(theta, -(double)i / (double)pairs) / (2 * 3.14159265358979323846);
}

static bool explains(llama3 r, const gguf_tensor *t, double theta)
{
    for (int64_t i = 0; i < t->ne[0]; i++) {
        double s = (r.old * inverse_wavelength(theta, i, t->ne[0]) - 1) / (r.high - 1);
        s = s < 0 ? 0 : s > 1 ? 1 : s;
        double f = 1 / ((1 - s) / r.factor + s), given = (double)factor_at(t, i);
        if (!(fabs(f - given) <= 1e-5 * f))
            return false;
    }
    return true;
}

/* Least squares through the pairs in between. */
static llama3 fit(double factor, const gguf_tensor *t, double theta)
{
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int64_t i = 0; i < t->ne[0]; i++) {
        double x = inverse_wavelength(theta, i, t->ne[0]);
        double y = (1 / (double)factor_at(t, i) - 1 / factor) / (1 - 1 / factor);
        if (y < 1e-4 || y > 1 - 1e-4)
            continue;
        n++;
        sx += x;
        sy += y;
        sxx += x * x;
        sxy += x * y;
    }
    double slope = (n * sxy - sx * sy) / (n * sxx - sx * sx), start = (sy - slope * sx) / n;
    double high = 1 - 1 / start;
    high = fabs(high - round(high)) < 1e-3 ? round(high) : high;
    return (llama3){ factor, high, round(slope * (high - 1)) };
}

static pesc_status put_llama3(json_t *config, const gguf *g, const gguf_tensor *t, double theta)
{
    llama3 r = { .factor = (double)factor_at(t, t->ne[0] - 1), .high = 4 };
    bool found = false;
    for (int k = 1; k <= 20 && !found; k++) {
        r.old = (double)(1 << k);
        found = explains(r, t, theta);
    }
    if (!found) {
        r = fit(r.factor, t, theta);
        found = isfinite(r.old) && r.old >= 1 && r.old <= INT32_MAX && explains(r, t, theta);
    }
    if (!found)
        return fail(PESC_UNSUPPORTED,
                    "%s: rope_freqs.weight: these factors do not follow Llama 3's rule, the one "
                    "pesc reads",
                    g->path);
    json_t *scaling = json_object();
    TRY(gguf_config_put(config, "rope_scaling", scaling));
    TRY(gguf_config_put(scaling, "rope_type", json_string("llama3")));
    TRY(gguf_config_put(scaling, "factor", json_real(r.factor)));
    TRY(gguf_config_put(scaling, "low_freq_factor", json_real(1.0)));
    TRY(gguf_config_put(scaling, "high_freq_factor", json_real(r.high)));
    return gguf_config_put(scaling, "original_max_position_embeddings",
                           json_integer((json_int_t)r.old));
}

/* Whether the file divides any frequency; refuses what is no list of factors. */
static pesc_status check_factors(const gguf *g, const gguf_tensor *t, int64_t pairs, bool *any)
{
    *any = false;
    if (t->dt != DT_F32 || t->nd != 1 || t->ne[0] != pairs)
        return fail(PESC_SHAPE, "%s: rope_freqs.weight: expected %lld numbers in f32", g->path,
                    (long long)pairs);
    for (int64_t i = 0; i < pairs; i++) {
        float f = factor_at(t, i);
        if (!isfinite(f) || f <= 0)
            return fail(PESC_FORMAT,
                        "%s: rope_freqs.weight: number %lld is %g, expected more than 0", g->path,
                        (long long)i, (double)f);
        *any |= f != 1.0f;
    }
    return PESC_OK;
}

pesc_status gguf_rope(json_t *config, const gguf *g, const gguf_arch *a, double theta,
                      int64_t rope_dim)
{
    const gguf_tensor *freqs = gguf_tensor_find(g, "rope_freqs.weight");
    const char *legacy = "rope.scale_linear";
    gguf_text type = { "none", 4 };
    bool any = false;
    TRY(gguf_get_text(g, gguf_arch_key(a, "rope.scaling.type").text, false, &type));
    if (freqs)
        TRY(check_factors(g, freqs, rope_dim / 2, &any));
    if (gguf_text_is(type, "none") && any)
        return put_llama3(config, g, freqs, theta);
    bool old_linear = gguf_text_is(type, "none") && gguf_find(g, gguf_arch_key(a, legacy).text);
    if (gguf_text_is(type, "none") && !old_linear)
        return PESC_OK;
    bool linear = old_linear || gguf_text_is(type, "linear"), yarn = gguf_text_is(type, "yarn");
    if (any || (!linear && !yarn))
        return fail(PESC_UNSUPPORTED,
                    "%s: %s.rope.scaling.type: found '%.*s'%s; pesc reads none, linear, yarn, and "
                    "Llama 3's factors",
                    g->path, a->name, (int)(type.n < 64 ? type.n : 64), type.p,
                    any ? " together with rope_freqs.weight" : "");
    json_t *scaling = json_object();
    TRY(gguf_config_put(config, "rope_scaling", scaling));
    TRY(gguf_config_put(scaling, "rope_type", json_string(linear ? "linear" : "yarn")));
    if (linear)
        return put_factor(scaling, g, a, old_linear ? legacy : "rope.scaling.factor");
    return put_yarn(scaling, g, a);
}
