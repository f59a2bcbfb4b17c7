/* log: the library never prints. Notices and progress go to the callbacks (pesc_events) of the
 * public call that is running on this thread; on worker threads no callbacks are set. */
#ifndef PESC_BASE_LOG_H
#define PESC_BASE_LOG_H

#include "base/status.h"

/* One sentence a user should see although nothing failed ("auto_map is ignored: ..."). */
void log_notice(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* How far a long call is. Cheap: call it every step. */
void log_progress(const char *what, uint64_t done, uint64_t total);

/* A public function that takes `const pesc_events *ev` states LOG_EVENTS(ev) once: from there to
 * the end of the block the events of this thread are the caller's. Nests; NULL keeps those that are
 * set, so that one public function may call another. */
typedef struct log_scope {
    pesc_events events;
    const pesc_events *outer;
} log_scope;
pesc_status log_begin(log_scope *s, const pesc_events *ev, const char *function);
void log_end(log_scope *s);

#define LOG_EVENTS(ev)                                                                             \
    __attribute__((cleanup(log_end))) log_scope log_scope_;                                        \
    TRY(log_begin(&log_scope_, (ev), __func__))

/* For handles that keep events. log_read_events() checks and copies the caller's struct; ev NULL:
 * no events. log_swap() makes `ev`, which must stay, the events of this thread and returns what
 * they were. */
const pesc_events *log_swap(const pesc_events *ev);
pesc_status log_read_events(pesc_events *to, const pesc_events *ev, const char *function);

#endif
