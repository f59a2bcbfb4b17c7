/* gguf_export: a model as one GGUF file for llama.cpp and its like, with a Modelfile for Ollama
 * beside it.
 *
 * Tensors have llama.cpp's names, experts are stacked, and rows of q and k are permuted where its
 * architecture rotates neighbouring pairs. Norms, biases and routers are F32; matrices have the
 * type that was asked for, where their rows are whole blocks of it, else Q8_0 or F16. With Q4_0 and
 * Q4_K the head is Q6_K, as llama.cpp has it. */
#ifndef PESC_CRAFT_GGUF_EXPORT_H
#define PESC_CRAFT_GGUF_EXPORT_H

#include "craft/target.h"

/* p->dir is the file when it ends in .gguf, else a directory in which model.gguf is written. */
pesc_status gguf_export(target_model *p, const pesc_export_options *o);

/* The dtype that `text` names; NULL or "": as stored, bf16 where that is quantised. */
pesc_status gguf_export_dtype(const source_model *p, const char *text, dtype *out);

#endif
