/* expertcfg: which experts train: expert_cfg.json, as ESFT released it.
 *
 *     {"experts": {"1": [44, 26], "10": [7]}, "shared_experts": false, "non_expert_modules": false}
 *
 * A key of "experts" is a decoder layer counted from 0; its list has the chosen experts, best
 * first. Layers may come in any order (released files have them sorted as text), a list is a set,
 * and an empty one says that nothing of that layer trains. The order is kept, so that a file that
 * is read and written again has the same bytes. The flags may be absent: false.
 *
 * Reading refuses what no model can mean: keys that are not layers, a layer or an expert twice,
 * what is not a whole number, unknown keys. What must fit a model is expertcfg_check(). */
#ifndef PESC_FORMAT_EXPERTCFG_H
#define PESC_FORMAT_EXPERTCFG_H

#include "base/status.h"
#include "base/str.h"

#define EXPERTCFG_FILE "expert_cfg.json"

typedef struct expertcfg_layer {
    int32_t layer; /* of the decoder, from 0 */
    int32_t n;
    int32_t *listed;   /* as in the file: best first */
    int32_t *ids;      /* the same, ascending */
    uint64_t *domains; /* [n], of ids: bit d is set where domain d chose it; NULL: no domains */
} expertcfg_layer;

/* Zero-initialise to start; expertcfg_free() to end, also after a failure. */
typedef struct expertcfg {
    expertcfg_layer *layers; /* as in the file; experts of layer L: expertcfg_find() */
    size_t n_layers;
    bool shared_experts, non_expert_modules;
    char **domains; /* [n_domains]: names, of the union of several choices; n_domains 0: one */
    size_t n_domains;
} expertcfg;

enum { EXPERTCFG_DOMAINS = 64 };

pesc_status expertcfg_read(expertcfg *out, const char *path);
pesc_status expertcfg_parse(expertcfg *out, const char *text, size_t n, const char *where);
void expertcfg_free(expertcfg *c);

/* NULL: the file does not name that layer. */
const expertcfg_layer *expertcfg_find(const expertcfg *c, int32_t layer);
bool expertcfg_has(const expertcfg *c, int32_t layer, int32_t expert);
int64_t expertcfg_total(const expertcfg *c); /* experts of all layers */

/* Whether it fits a model: every sparse layer is named, no other is, and every id is below
 * n_experts. sparse[l] says whether layer l of n_layers has experts. `where` begins the sentence.
 */
typedef struct expertcfg_shape {
    const bool *sparse;
    int32_t n_layers, n_experts;
} expertcfg_shape;
pesc_status expertcfg_check(const expertcfg *c, expertcfg_shape shape, const char *where);

/* Appends a layer with its experts, best first; the ids are copied. */
pesc_status expertcfg_add(expertcfg *c, int32_t layer, const int32_t *listed, int32_t n);

/* Makes the choice of one more domain part of a union, which begins as {0}: an expert is chosen
 * where any domain chose it. Both must fit the same model; the flags are those of the first, and
 * all must have the same. There is room for EXPERTCFG_DOMAINS. */
pesc_status expertcfg_add_domain(expertcfg *out, const char *name, const expertcfg *c);

/* Byte for byte as released: one line, no newline after it. */
void expertcfg_put(str *out, const expertcfg *c);
pesc_status expertcfg_write(const expertcfg *c, const char *path);

#endif
