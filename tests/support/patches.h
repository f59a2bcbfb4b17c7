/* patches: writes expert patches for tests. */
#ifndef TESTS_SUPPORT_PATCHES_H
#define TESTS_SUPPORT_PATCHES_H

#include "arch/model.h"

/* Writes a patch of random numbers to files_path(dir): the tensors of the model that cfg, the text
 * of an expert_cfg.json, names. */
void patches_put(pesc_model *m, const char *cfg, const char *dir, uint64_t seed);

#endif
