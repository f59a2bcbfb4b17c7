/* runsums: SHA-256 of the files of a checkpoint, by threads, while others are still being written.
 */
#ifndef PESC_RUN_RUNSUMS_H
#define PESC_RUN_RUNSUMS_H

#include "base/status.h"

enum { RUNSUMS_TEXT = 65 }; /* 64 hexadecimal digits and the terminator */

/* Of bytes in memory, and of a file. */
pesc_status runsums_of_text(const char *text, size_t n, char out[RUNSUMS_TEXT]);
pesc_status runsums_of_file(const char *path, char out[RUNSUMS_TEXT]);

typedef struct runsums runsums;
pesc_status runsums_open(runsums **out);
void runsums_close(runsums *s); /* waits for its threads; NULL is allowed */

/* Begins to hash dir/name, into which nothing is written any more. A name that was added before is
 * ignored. */
pesc_status runsums_add(runsums *s, const char *dir, const char *name);

/* Waits for the hash of a file that was added. */
pesc_status runsums_get(runsums *s, const char *name, char out[RUNSUMS_TEXT]);

#endif
