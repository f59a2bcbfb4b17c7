/* datafiles: the files that a name of data stands for.
 *
 * A path of a file is that file. DIR[:SPLIT] is the split of a data set in a directory, and
 * org/name[:SPLIT] of one in Hugging Face's cache of downloads: the files SPLIT.jsonl,
 * SPLIT-00000-of-00003.parquet and the like in it or in its folder data, in the order of their
 * names, all with one ending; or the files of a folder SPLIT. SPLIT is train if absent,
 * CONFIG/SPLIT is a split of the folder CONFIG. A directory with one data file alone stands for it.
 */
#ifndef PESC_DATA_DATAFILES_H
#define PESC_DATA_DATAFILES_H

#include "base/status.h"

typedef struct datafiles {
    char **paths;
    size_t n, cap;
} datafiles;

/* Adds the files of a name. PESC_IO, with what is there, when there are none; a directory that the
 * Python package datasets saved is refused with the command that converts it. */
pesc_status datafiles_add(datafiles *f, const char *name);

/* Adds the files of a split in a directory; none when there are none. */
pesc_status datafiles_split(datafiles *f, const char *dir, const char *split);

void datafiles_free(datafiles *f);

#endif
