/* stops: a text that is generated until a stop string. As many bytes at its end are held back as
 * could still become one. */
#ifndef PESC_INFER_STOPS_H
#define PESC_INFER_STOPS_H

#include "base/status.h"
#include "base/str.h"

typedef struct stop_text {
    str text;                /* all of it, without the stop string that ended it */
    size_t certain;          /* bytes of it that nothing to come can change */
    const char *const *stop; /* [n_stop], borrowed; "" is ignored */
    size_t n_stop;
    bool keep;      /* the stop string stays part of the text */
    bool ignore;    /* a stop string that ends in what is appended now does not count, nor later */
    size_t ignored; /* bytes of the text that were appended so, and those before them */
    bool stopped;   /* by a stop string */
    const char *by; /* which one; NULL: none */
} stop_text;

/* Appends. last: nothing follows, so nothing is held back. Does nothing after a stop string. */
pesc_status stop_text_put(stop_text *t, const char *text, size_t n, bool last);

#endif
