/* shards: a model in several files and the index that says which tensor is where
 * (model.safetensors.index.json, pytorch_model.bin.index.json).
 *
 * The index and the files must agree exactly: every shard named is there, every tensor named is in
 * its shard and in no other, and no shard holds a tensor that the index does not name. A shard is a
 * plain file name in the index's own directory. The index is scanned in place, twice. */
#ifndef PESC_FORMAT_SHARDS_H
#define PESC_FORMAT_SHARDS_H

#include "format/weights.h"

/* Reads one file of tensors into the table: safetensors_read or torchbin_read. */
typedef pesc_status (*shards_read_fn)(weights *ws, const char *path);

pesc_status shards_read(weights *ws, const char *dir, const char *index, shards_read_fn read);

#endif
