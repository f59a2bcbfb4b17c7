/* log: the library never prints; it hands notices to whoever set a listener. */
#ifndef PESC_BASE_LOG_H
#define PESC_BASE_LOG_H

#include <stdint.h>

/* One sentence a user should see though nothing failed ("auto_map is ignored: ..."). */
void log_notice(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* How far a long call is, for whoever listens (pesc_on_progress). Cheap: call it every step. */
void log_progress(const char *what, uint64_t done, uint64_t total);

#endif
