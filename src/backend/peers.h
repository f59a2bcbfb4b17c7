/* peers: the other processes of a run, as the rooms below src/dist see them.
 *
 * A process that was started alone has peers of NULL: every function here accepts it and has
 * nothing to do, so callers do not ask how many processes there are. All processes make the same
 * calls in the same order, with sizes that fit together. `what` names the call in the sentence of a
 * failure ("the losses of a step"); it must be a literal. A process that is lost makes the call
 * fail with PESC_LOST. */
#ifndef PESC_BACKEND_PEERS_H
#define PESC_BACKEND_PEERS_H

#include "base/status.h"
#include "base/str.h"

/* What goes to a process, or comes from it. */
typedef struct peer_part {
    void *at;
    size_t bytes; /* 0: nothing */
} peer_part;

typedef struct peers peers;
struct layer_hook;
struct params;
struct gradient;
struct reducer;

struct peers {
    int32_t rank, size;
    pesc_status (*agree)(peers *p, const char *what, pesc_status own);
    pesc_status (*gather)(peers *p, const char *what, const peer_part *all);
    /* Whether all processes have the text of rank 0, lines "key: value"; PESC_USAGE in all of them
     * names the rank where something differs, and what. */
    pesc_status (*same)(peers *p, const char *text);
    /* Makes the hook of a model of which each process keeps a part (arch/layer_hook.h); *out is to
     * be closed even when that failed. */
    pesc_status (*hook)(peers *p, pesc_model *m, struct layer_hook **out);
    /* Fills in which ranges of the flat buffers this process owns. */
    pesc_status (*divide)(peers *p, struct params *what);
    /* How gradients are added over the processes (train/gradient.h). */
    pesc_status (*reduce)(peers *p, struct gradient *g, struct reducer **out);
};

static inline int32_t peers_rank(const peers *p)
{
    return p ? p->rank : 0;
}

static inline int32_t peers_size(const peers *p)
{
    return p ? p->size : 1;
}

static inline bool peers_lead(const peers *p) /* rank 0: it writes files and prints */
{
    return peers_rank(p) == 0;
}

/* The outcome of something that each process did on its own: `own` where all succeeded; where some
 * failed, a process that did not fails as well, with the sentence of the first one that did and its
 * rank and host. */
static inline pesc_status peers_agree(peers *p, const char *what, pesc_status own)
{
    return p ? p->agree(p, what, own) : own;
}

/* all[r] is what rank r has: every process has its own part and receives the others'. */
static inline pesc_status peers_gather(peers *p, const char *what, const peer_part *all)
{
    return p ? p->gather(p, what, all) : PESC_OK;
}

/* *v becomes the largest, or the least, of all processes' values. */
pesc_status peers_most(peers *p, const char *what, int64_t *v);
pesc_status peers_least(peers *p, const char *what, int64_t *v);

/* x[i] becomes the sum of all processes' x[i], added in the order of ranks. */
pesc_status peers_add(peers *p, const char *what, float *x, size_t n);

/* The bytes become those of rank 0. */
pesc_status peers_follow(peers *p, const char *what, void *at, size_t bytes);

/* Every process has a text; `take` is called with that of each other process, in the order of
 * ranks. A NUL is in the text or comes somewhere after it. */
typedef pesc_status (*peers_take)(void *ctx, const char *text, size_t n);
pesc_status peers_texts(peers *p, const char *what, const str *own, peers_take take, void *ctx);

#endif
