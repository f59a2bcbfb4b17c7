/* replace: a model directory written in the place of an older one.
 *
 * Every model directory that pesc writes has .pesc-files.json, the list of its files. Only a
 * directory that has one may be replaced, and only the files on that list go: whatever else a user
 * keeps there stays. The new directory is complete before it takes the place of the old one, in one
 * rename, so at every moment one of the two is there. */
#ifndef PESC_FORMAT_REPLACE_H
#define PESC_FORMAT_REPLACE_H

#include "base/status.h"

#define REPLACE_LIST ".pesc-files.json"

/* Writes the list for a directory in which everything was written by pesc; `last` is a file that is
 * still to come, and may be NULL. */
pesc_status replace_list(const char *dir, const char *last);

#endif
