/* patched: an expert patch that is applied to an open model, and removed again.
 *
 * The patch's tensors are written over the model's own memory, converted or quantised as loading
 * does it; a module without experts that the patch holds in another dtype gets memory of its own
 * meanwhile. Taking it out loads the same tensors from the base's files again, which is the way
 * they came in: so the model is bit for bit what it was, and no copy is kept. Tensors that are used
 * where they lie in a mapped file cannot be overwritten; they point elsewhere meanwhile. */
#ifndef PESC_ATTACH_PATCHED_H
#define PESC_ATTACH_PATCHED_H

#include "arch/model.h"
#include "format/patch.h"

/* Whether a patch belongs to a base: its experts are there, it holds exactly their tensors in the
 * right shapes, and was made for this base, where it says for which. `path` is the base's. */
pesc_status patched_check(const patch *p, const config *c, const weights *base, const char *path);

/* What a patch records of its base: 16 hexadecimal digits over names, shapes and a few numbers of
 * every tensor. Cheap, and different for models that were trained differently. Numbers count as
 * f32, so the dtype does not matter. */
void patched_base_hash(const config *c, const weights *ws, char out[17]);

/* Applies the patch in `dir` instead of the one that is applied now, if there is one. A patch that
 * does not belong to the model is refused and changes nothing; one that cannot be read to its end
 * leaves the base. patched_remove() restores the base; without a patch it does nothing. */
pesc_status patched_apply(pesc_model *m, const char *dir);
pesc_status patched_remove(pesc_model *m);

/* Frees the memory of the patch; the model cannot run after that. */
void patched_close(pesc_model *m);

#endif
