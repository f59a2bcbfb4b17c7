/* safetensors: a JSON header that says where each tensor's bytes are, then those bytes.
 *
 * Reading is strict: the header is valid JSON of exactly the expected shape, no name occurs twice
 * (however it is escaped), the tensors cover the data without hole, overlap or rest. A zero-size
 * tensor is an empty range between two others; a shape whose non-zero dimensions overflow is
 * refused even when another dimension is 0. The parse is one pass over the mapped header, linear in
 * its size; no tensor byte is touched.
 *
 * Writing streams: shapes are declared first, then the bytes follow tensor by tensor, so a model
 * larger than memory can be written. Each file appears complete or not at all, and the index last:
 * a directory with an index is a whole model. */
#ifndef PESC_FORMAT_SAFETENSORS_H
#define PESC_FORMAT_SAFETENSORS_H

#include "format/weights.h"

enum { SAFETENSORS_MAX_HEADER = 100000000 };

/* The format's names of the dtypes it shares with pesc; NULL for the others. */
extern const char *const safetensors_dtypes[DT_COUNT];

/* Adds every tensor of the file to the table. */
pesc_status safetensors_read(weights *ws, const char *path);
/* The same over a map that somebody else keeps for as long as the table lives. */
pesc_status safetensors_read_map(weights *ws, const io_map *m);

typedef struct safetensors_spec {
    const char *name;
    dtype dt; /* F32 BF16 F16 F64 I8 I16 I32 I64 U8 BOOL */
    int32_t nd;
    int64_t ne[WEIGHTS_MAX_DIMS];
} safetensors_spec;

/* What will be written; all it points to is borrowed until the writer is closed. */
typedef struct safetensors_plan {
    const char *dir;
    const char *stem;              /* "model": model.safetensors, or model-00001-of-00003... */
    const safetensors_spec *specs; /* in the order in which the bytes will come */
    size_t n;
    uint64_t shard_bytes; /* a shard closes before it would exceed this; 0: one file */
} safetensors_plan;

typedef struct safetensors_writer safetensors_writer;

pesc_status safetensors_writer_open(safetensors_writer **out, const safetensors_plan *plan);
/* The next n bytes of the current tensor, little-endian; after its last byte the next is current.
 * More bytes than the tensor has left is a broken promise. */
pesc_status safetensors_write(safetensors_writer *w, const void *bytes, size_t n);
/* Publishes the last file and the index, and closes, whatever happens. All bytes must have come. */
pesc_status safetensors_writer_finish(safetensors_writer *w);
void safetensors_writer_abort(safetensors_writer *w); /* NULL is allowed; published shards stay */

/* One file that several processes fill: one of them lays it out, with the room of all tensors; then
 * each opens it with the same plan and writes parts of tensors, from byte `at` of the tensor on,
 * which are durable after safetensors_fill_close(). plan->shard_bytes must be 0. */
pesc_status safetensors_lay_out(const safetensors_plan *plan);
pesc_status safetensors_fill_open(safetensors_writer **out, const safetensors_plan *plan);
pesc_status safetensors_fill(safetensors_writer *w, size_t tensor, uint64_t at, const void *bytes,
                             size_t n);
pesc_status safetensors_fill_close(safetensors_writer *w); /* also frees, whatever happens */

#endif
