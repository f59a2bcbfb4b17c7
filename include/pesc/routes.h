/* routes: what the routers of a model choose, and did in a run. Part of pesc.h. */
#ifndef PESC_ROUTES_H
#define PESC_ROUTES_H
#ifndef PESC_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

typedef struct pesc_routes_options {
    size_t size;
    PESC_ROUTES_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_routes_options;

typedef struct pesc_routes_domain {
    char *name;
    uint64_t records, tokens;
} pesc_routes_domain;
/* A token that an expert of the chosen layer takes more often than its share of all tokens. */
typedef struct pesc_routes_token {
    int32_t id; /* -1: there are no more */
    uint64_t seen, chosen;
    double lift; /* part of its occurrences that choose the expert / the same part of all tokens */
} pesc_routes_token;
typedef struct pesc_routes_report {
    size_t size;
    pesc_routes_domain *domains;
    int64_t *layers; /* numbers of the layers that have a router */
    size_t n_domains, n_layers, experts, top_k;
    double *share;      /* [n_domains, n_layers, experts]: fraction of the domain's choices */
    double *difference; /* [n_layers]: Jensen-Shannon divergence of the domains. 0: they choose
                           alike; 1: no two have an expert in common; NaN: there is one domain */
    uint64_t *counts;   /* [n_domains, n_layers, top_k, experts]: tokens whose first, second, ...
                           choice each expert is */
    double *gate;       /* [n_domains, n_layers, experts]: mean gate where chosen; NaN: never */
    double
        *slot_gate;  /* [n_domains, n_layers, top_k]: mean gate of the first, second, ... choice */
    double *load;    /* [n_domains, n_layers]: largest share / mean share; 1: even */
    double *entropy; /* [n_domains, n_layers]: of the shares; 1: even, 0: one expert has all */
    /* The permutation test: domains are exchanged among records. [n_layers] each, NaN without. */
    double *chance;  /* mean difference that exchanged domains have */
    double *p_value; /* fraction of exchanges that differ as much as the domains do, or more; both
                        are counted with the one observed: (1 + n) / (1 + permutations) */
    /* [experts, n_tokens]: of the layer that was asked for, the most surplus choices first; NULL:
     * none was */
    pesc_routes_token *tokens;
    size_t n_tokens;
} pesc_routes_report;
/* Counts which experts the tokens of each domain (see pesc_data_domain) choose. PESC_USAGE: the
 * layer of the options has no router. */
pesc_status pesc_routes(pesc_model *m, const pesc_routes_options *opt, pesc_routes_report *out);
void pesc_routes_free(pesc_routes_report *r); /* also after a failure */

/* What routing.jsonl of a run says, step by step; layers are those that have experts. */
typedef struct pesc_routes_history {
    size_t size;
    size_t n_steps, n_layers, experts;
    double *steps;                 /* [n_steps] */
    double *load, *entropy, *dead; /* [n_layers, n_steps]: as above; experts with less than 1 % of
                                      an even share */
} pesc_routes_history;
/* run_dir: the directory of a run. Of a long run, some 2000 steps are read. PESC_FORMAT: it has no
 * steps with experts. */
pesc_status pesc_routes_over_time(const char *run_dir, const pesc_events *ev,
                                  pesc_routes_history *out);
void pesc_routes_history_free(pesc_routes_history *h); /* also after a failure */

#endif
