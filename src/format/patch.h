/* patch: an expert patch: tensors that take the place of a base model's, and which these are.
 *
 *     expert_cfg.json    the experts it holds (expertcfg.h)
 *     *.safetensors      their tensors, under the names of the base model
 *     patch.json         the base it was made for; published patches have none
 *
 * A checkpoint of method esft is one too (run/runmodel.h). ESFT's first patches leave out the
 * "model." that begins a name: it is put back. What must fit a model is not checked here. */
#ifndef PESC_FORMAT_PATCH_H
#define PESC_FORMAT_PATCH_H

#include "format/expertcfg.h"
#include "format/weights.h"

typedef struct patch {
    char *dir;
    expertcfg cfg;
    char base[17]; /* of the base it belongs to, as patch_describe() wrote it; "": not known */
    weights *ws;   /* all tensors, under the base's names */
    weights *read; /* as the files have them: owns the bytes */
} patch;

/* file: the one that holds all tensors; NULL: every safetensors file of the directory. */
pesc_status patch_open(patch **out, const char *dir, const char *file);
void patch_close(patch *p); /* NULL is allowed */

/* Writes patch.json. */
pesc_status patch_describe(const char *dir, const char base[17]);

#endif
