/* rope_freq: how fast each pair of columns turns. Reads the rope keys of config.json in the
 * spellings of transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters), and computes the
 * inverse frequencies in f32 in transformers' order of operations, since at long positions an ulp
 * shows.
 *
 * Turning itself is an op (backend.h: rope_table, rope). */
#ifndef PESC_ARCH_ROPE_FREQ_H
#define PESC_ARCH_ROPE_FREQ_H

#include "arch/config.h"

/* Fills the rope_ fields of a configuration whose context is known. */
pesc_status rope_read(config *c, json_where w);

/* How many tokens at the beginning of a sequence of `length` tokens have rotations, and hence keys,
 * that do not depend on what follows: with dynamic scaling none of a sequence beyond the context.
 * Only these may be shared with another sequence that begins with the same tokens. */
int32_t rope_shareable(const config *c, int32_t length);

/* The shortest or longest length with the rotations of `length`: the same for all that share them.
 */
int64_t rope_length(const config *c, int64_t length);

/* Whether a sequence that grows to `to` tokens needs other rotations for those that were cached
 * when it had `from`: with longrope, which then rotates all of them anew. */
bool rope_outgrown(const config *c, int64_t from, int64_t to);

/* config_rope_dim / 2 values of a table (config.ropes) for sequences of `length` tokens. Only
 * dynamic scaling looks at the length beyond the context, and longrope beyond the original one. */
void rope_frequencies(const config *c, int32_t table, int64_t length, float *out);

int32_t rope_turning(const rope_rule *r, int32_t dim); /* proportional: pairs that rotate */

float rope_table_scale(const rope_rule *r);  /* on cos and sin */
float rope_attention_scale(const config *c); /* on q k: 1/sqrt(qk_dim), and what YaRN asks of MLA */
float rope_query_scale(const config *c, int32_t pos); /* on q, by its position (q_scale_beta) */

#endif
