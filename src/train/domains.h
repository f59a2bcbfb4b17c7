/* domains: several domains in one run, each of which trains its own experts (option
 * domain_experts).
 *
 * Every domain has a choice of experts. Their union is what the run trains (train_spec.own or
 * lora_own); a micro-batch has records of one domain (batch_options.domains), and its tokens add to
 * the gradients of the experts that this domain chose (expert_list.domains). Forward is the same
 * for all: routers choose among all experts. */
#ifndef PESC_TRAIN_DOMAINS_H
#define PESC_TRAIN_DOMAINS_H

#include "train/trainer.h"

/* Reads NAME=FILE,...: *own becomes the union of the choices, each of which must fit the model. */
pesc_status domains_read(expertcfg *own, const char *text, const config *c);

/* How many domains the text names; 0 of NULL or "". */
int64_t domains_count(const char *text);

/* The text with absolute paths; the caller frees it. */
pesc_status domains_absolute(char **out, const char *text);

/* Whether every record of the training data is of one of the domains, and each domain has some; a
 * notice tells how many, and how many experts they train. */
pesc_status domains_check(const expertcfg *own, dataset *d);

/* The bit of the domain of a micro-batch; 0: none. */
static inline uint64_t domains_bit(const micro_batch *m)
{
    return m->group ? (uint64_t)1 << (m->group - 1) : 0;
}

/* Adds the losses of the micro-batches of b, which the process has the totals of, to those of their
 * domains; sums [EXPERTCFG_DOMAINS]. */
void domains_add(metrics_domain *sums, const step_totals *r, const batch *b);

/* Names the first n of these and zeroes them. */
void domains_clear(metrics_domain *sums, const expertcfg *own);

#endif
