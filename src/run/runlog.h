/* runlog: the logs of a run, files of JSON lines that a run appends to while others read them. */
#ifndef PESC_RUN_RUNLOG_H
#define PESC_RUN_RUNLOG_H

#include "base/io.h"
#include "base/json.h"

typedef struct runlog {
    io_map *map; /* NULL: there is no such file, or it is empty */
    size_t n;    /* complete lines */
    char *path;
} runlog;

/* Closed by runlog_close() even when it failed. */
pesc_status runlog_open(runlog *l, const char *run, const char *name);
void runlog_close(runlog *l);

/* Hands the lines first, first + stride, ... to `each`, parsed; the last line always. */
typedef pesc_status (*runlog_fn)(void *ud, json_where w);
pesc_status runlog_each(const runlog *l, size_t first, size_t stride, runlog_fn each, void *ud);

/* The shares of routing.jsonl: `layers` is an array of rows of the same length. Sets *layers and
 * *experts where they are 0, and checks the line against them otherwise. */
pesc_status runlog_shape(json_where w, size_t *layers, size_t *experts);
double runlog_share(json_where w, size_t layer, size_t expert);

#endif
