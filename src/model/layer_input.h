/* layer_input: each layer has an input of its own beside the stream (Gemma 4 E2B, E4B). Those of
 * all layers are made before the first one, of the tokens and their embeddings x: rows = (norm(proj
 * x / sqrt(C)) + sqrt(Y) embed(id)) / sqrt(2), the norm over each layer's columns. At its end layer
 * l adds norm(proj_l (act(gate_l x) * rows_l)) to the stream x. */
#ifndef PESC_MODEL_LAYER_INPUT_H
#define PESC_MODEL_LAYER_INPUT_H

#include "model/attention.h"

/* Of the pass, [T,Z]; absent: layers have no inputs. */
typedef struct layer_input_rows {
    tensor rows;   /* the inputs of all layers; after backward the gradient of raw */
    tensor raw;    /* proj x / sqrt(C) */
    tensor normed; /* norm raw; in backward the gradient of rows */
    tensor rstd;   /* f32 [T*layers]; training */
} layer_input_rows;

/* Of a layer. */
typedef struct layer_input_acts {
    tensor h;         /* [T,C]: the stream, as an activation */
    tensor gate, mid; /* [T,Y]: gate h, and what proj reads */
    tensor row;       /* [T,Y]: the layer's input; in backward its gradient */
    tensor raw;       /* [T,C]: what the norm reads */
    tensor rstd;      /* f32 [T]; training */
} layer_input_acts;

/* Nothing, where layers have no inputs. */
void layer_input_rows_layout(layer_input_rows *r, arena *mem, const acts_plan *plan);
void layer_input_layout(layer_input_acts *a, arena *mem, const acts_plan *plan);

/* The inputs of all layers, from the embeddings in p->x. */
void layer_inputs_fwd(const pass *p);

/* acts.input.raw from acts.input.h, of layer `layer`. */
void layer_input_fwd(const pass *p, int32_t layer);

/* dh [T,C] of the same from dy [T,C], the gradient of raw; that of the layer's input is kept. */
void layer_input_bwd(const pass *p, int32_t layer, const block *g, tensor dh, tensor dy);

/* After the lowest layer: adds the gradients of the weights of layer_inputs_fwd() to the mirror,
 * and that of the embeddings to grads.dx. */
void layer_inputs_bwd(const pass *p);

#endif
