/* tensor_plan: where the numbers of each tensor of a new model come from, and the writing of them.
 *
 * The slots of the target's configuration are walked. A tensor that the source has is copied, bit
 * for bit where it keeps its dtype; one that it has not is made as tensor_plan.c's table says:
 * routers and adapter_down U(-1/sqrt C, 1/sqrt C), adapter_up and shared experts zero, experts
 * copies of the source's FFN, or of shards of it (expert_copies). A LoRA is folded in on the way: W
 * + scale B A, in f32.
 *
 * Tensors are streamed piece by piece: memory does not grow with the model. (Going through NF4
 * takes one matrix.) Made numbers depend on the seed, the tensor's name and the index only. */
#ifndef PESC_CRAFT_TENSOR_PLAN_H
#define PESC_CRAFT_TENSOR_PLAN_H

#include "arch/bind.h"
#include "craft/donors.h"
#include "craft/source_model.h"
#include "craft/stream.h"

/* How full experts are made of the source's FFN: expert e is shard e % granularity of copy
 * e / granularity, whose rows of gate and up and columns of down follow each other. */
typedef struct expert_copies {
    int64_t granularity; /* experts that one copy is cut into */
    float down;          /* factor on the down of an expert */
    bool shared;         /* the shared expert is a copy too; else it is zero */
    float shared_down;   /* factor on its down */
    double reinit;       /* share of the hidden units of an expert that is drawn anew */
    donors *from;        /* copy i is the FFN of the i-th of these; NULL: all are the source's */
    float lora_scale; /* in a mixture of LoRA: of all experts; B holds what a LoRA's is besides */
} expert_copies;

typedef struct tensor_plan {
    const source_model *from;
    expert_copies copies;    /* where the target has full experts that the source has not */
    const config *target;    /* whose tensors are written */
    const char *dir;         /* that is written, */
    const char *place;       /* and what it will be called, for messages */
    dtype dt;                /* of all but norms, biases and routers; DT_COUNT: as stored */
    uint64_t seed;           /* of what is made */
    const peft *lora;        /* folded in, each of its matrices into its linear; NULL: none */
    const weights *over;     /* tensors in the place of the source's, in its dtypes; NULL: none */
    const bind_source *held; /* stored numbers are rounded first as they are held so; NULL: not */
    bool double_quant;       /* with that in nf4 */
    const int32_t *picked;   /* [n_layers, experts of the target]: the source's experts that it has;
                                NULL: all of them */
    bool bare_experts;       /* sparsetral's names: experts.3, not experts.expert_3 */
} tensor_plan;

/* Whether it is gate, up or down of a dense FFN. */
bool tensor_plan_ffn(const slot *s);

/* Writes the weights. Nothing is there yet when it fails for want of room or because something does
 * not fit. */
pesc_status tensor_plan_write(const tensor_plan *r);

/* Its tensors, in the order of the slots: where each comes from, and what is written. */
typedef struct tensor_list {
    stream_row *rows;
    safetensors_spec *specs; /* of the same tensors */
    char (*names)[128];
    size_t n;
    uint64_t bytes;
    size_t n_folded;    /* LoRAs that found their linear */
    dtype held, stored; /* while it is made: of the stack of experts at hand */
} tensor_list;
pesc_status tensor_plan_list(tensor_list *out,
                             const tensor_plan *r); /* to be freed also when it failed */
void tensor_list_free(tensor_list *s);

/* What --dtype asks for: NULL or "" is DT_COUNT, as stored, or bf16 when that is quantised. */
pesc_status tensor_plan_dtype(const source_model *p, const char *text, dtype *out);

#endif
