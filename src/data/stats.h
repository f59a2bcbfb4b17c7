/* stats: a data set read from its first record to its last, before anything is trained on it. Of
 * the records only the number of each length is kept, so quantiles are exact and memory is bounded
 * by the longest record. */
#ifndef PESC_DATA_STATS_H
#define PESC_DATA_STATS_H

#include "data/dataset.h"

/* Numbers of records, ascending; zeroed at first, freed by the caller with mem_free(at). */
typedef struct stats_list {
    uint64_t *at;
    size_t n, cap;
} stats_list;

enum { STATS_LISTED = 20 }; /* bad records that are listed */

/* Bad records are counted, not failures; the first STATS_LISTED of them become notices, each
 * with its place, and how many more there are. `unused` receives the good records of which
 * training makes no sequence; NULL: they are only counted. PESC_STOPPED when *stop becomes true;
 * NULL: never. */
pesc_status stats_read(dataset *d, volatile const int *stop, pesc_data_report *out,
                       stats_list *unused);

#endif
