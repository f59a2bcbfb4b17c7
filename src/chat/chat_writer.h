/* chat_writer: who writes conversations, and what is trained of them (private to chat). */
#ifndef PESC_CHAT_CHAT_WRITER_H
#define PESC_CHAT_CHAT_WRITER_H

#include "chat/chat.h"
#include "jinja/jinja.h"

struct chat_writer {
    const tokenizer *tok;      /* borrowed; NULL: facts only */
    const chat_format *format; /* that writes; NULL: the own template, or nothing */
    const chat_format *otherwise;
    jinja_template *jinja;      /* NULL: nothing writes */
    jinja_template *with_tools; /* used where tools are given; NULL: the same */
    char *problem;              /* why the own template cannot be compiled, or NULL */
    json_t *tokens;             /* what the template may name; NULL: nothing */
    char joint[9];              /* see chat_joint() */
    bool text_arguments;        /* see chat_takes_text_arguments() */
};

/* Tools may have a template of their own. */
const jinja_template *chat_template(const chat_writer *w, const chat_request *r);

/* `messages` instead of those of the request, which counts for the rest but its end. */
pesc_status chat_render(const chat_writer *w, const chat_request *r, const json_t *messages,
                        bool generation, jinja_text *out);

/* chat_mask.c: sets flags[i], zero before, for the bytes of `whole` that are trained. r has JSON
 * messages. */
pesc_status chat_mask(const chat_writer *w, const chat_request *r, const jinja_text *whole,
                      unsigned char *flags);

#endif
