/* fused_list: the tensors of a model as its family's files hold them: those that a fused rule names
 * become one (arch/fused.h). */
#ifndef PESC_CRAFT_FUSED_LIST_H
#define PESC_CRAFT_FUSED_LIST_H

#include "craft/tensor_plan.h"

typedef struct fused_list {
    stream_row *rows;        /* those of the list, in another order */
    safetensors_spec *specs; /* of the rows */
    size_t n;
    safetensors_spec *tensors; /* of the files */
    char (*names)[128];
    stream_join *joins;
    size_t n_tensors, n_joins;
    uint64_t bytes;
} fused_list;

/* `list` are the slots of `target` in their order. To be freed also when it failed. */
pesc_status fused_list_make(fused_list *out, const tensor_list *list, const config *target);
void fused_list_free(fused_list *j);

#endif
