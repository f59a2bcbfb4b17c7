/* sse: the answer to a streamed request, as it arrives: status, chunks, lines, events. */
#ifndef PESC_CLI_SSE_H
#define PESC_CLI_SSE_H

#include "cli/show/out.h"

typedef struct sse {
    int status;     /* of HTTP; 0: the head is not complete */
    bool done;      /* [DONE] has come, or the answer is complete */
    bool token;     /* the last event had text */
    int64_t tokens; /* that the server counted; -1: it has not said */
    /* inside */
    char *line;
    size_t n, cap;
    bool in_head, chunked;
    int64_t left; /* bytes of the chunk; -1: its size is being read */
    int64_t size; /* that has been read of it; -1: nothing */
    bool extension;
} sse;

void sse_open(sse *s);
void sse_close(sse *s);

/* Takes bytes up to the end of the next event; returns how many. s->token tells about it. */
size_t sse_feed(sse *s, const char *bytes, size_t n);

#endif
