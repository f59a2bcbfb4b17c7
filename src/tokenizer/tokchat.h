/* tokchat: the chat template that comes with a tokenizer, compiled, and the tokens it may name. */
#ifndef PESC_TOKENIZER_TOKCHAT_H
#define PESC_TOKENIZER_TOKCHAT_H

#include "jinja/jinja.h"

/* Zero-initialise to start. */
typedef struct tokchat {
    jinja_template *jinja;      /* NULL: none, or none that can be run */
    jinja_template *with_tools; /* used where tools are given; NULL: the same */
    char *problem;              /* why it cannot be run; NULL: it can, or there is none */
    json_t *tokens;             /* {"bos_token": "<s>", ...}: what the template may name */
} tokchat;

/* Compiles the template in the place of the one before. One that cannot be compiled is no failure:
 * the sentence is kept as the problem. tools may be NULL. */
pesc_status tokchat_compile(tokchat *c, const char *source, const char *tools);

/* Takes "bos_token", "eos_token" and the like from a tokenizer's configuration, which may be NULL.
 */
pesc_status tokchat_name_tokens(tokchat *c, const json_t *config);
pesc_status tokchat_name_token(tokchat *c, const char *name, const char *token, size_t n);

void tokchat_free(tokchat *c);

#endif
