/* torchbin: a dictionary of tensors as torch.save() writes it since 1.6: a ZIP archive with the
 * pickle NAME/data.pkl and one entry NAME/data/KEY for each storage.
 *
 * Tensors are views into storages; pesc takes those whose elements are contiguous, which is what
 * models are saved as. Two tensors may share a storage (tied embeddings). */
#ifndef PESC_FORMAT_TORCHBIN_H
#define PESC_FORMAT_TORCHBIN_H

#include "format/weights.h"

/* Adds every tensor of the file to the table. */
pesc_status torchbin_read(weights *ws, const char *path);
/* The same over a map that somebody else keeps for as long as the table lives. */
pesc_status torchbin_read_map(weights *ws, const io_map *m);

#endif
