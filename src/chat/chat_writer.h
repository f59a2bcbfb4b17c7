/* chat_writer: who writes conversations, and what is trained of them (private to chat). */
#ifndef PESC_CHAT_CHAT_WRITER_H
#define PESC_CHAT_CHAT_WRITER_H

#include "chat/chat.h"
#include "jinja/jinja.h"
#include "jinja/pytext.h"

struct chat_writer {
    const tokenizer *tok;      /* borrowed; NULL: facts only */
    const chat_format *format; /* that writes; NULL: the own template, or nothing */
    const chat_format *otherwise;
    jinja_template *jinja;      /* NULL: nothing writes */
    jinja_template *with_tools; /* used where tools are given; NULL: the same */
    char *problem;              /* why the own template cannot be compiled, or NULL */
    json_t *tokens;             /* what the template may name; NULL: nothing */
    char joint[9];    /* what it writes between two text parts of a message: white space */
    bool late_system; /* see chat_takes_late_system() */
    /* Of calls of tools: */
    bool takes_calls;      /* a built-in format has a place for them */
    bool text_arguments;   /* arguments are written as they are, so they must be JSON text */
    bool verbatim;         /* arguments that are text are written as they are */
    bool null_content;     /* a message with calls may have the content null */
    bool no_empty_content; /* calls beside an empty text would be lost: it must be null */
    const char *reasoning; /* the field that the template reads; NULL: none */
};

/* Tools may have a template of their own. */
const jinja_template *chat_template(const chat_writer *w, const chat_request *r);

/* `messages` instead of those of the request, which counts for the rest but its end. */
pesc_status chat_render(const chat_writer *w, const chat_request *r, const json_t *messages,
                        bool generation, jinja_text *out);

/* chat_message.c: the messages of a request as the template reads them. PESC_USAGE: a part is no
 * text, a call is malformed, or a built-in format has no place for calls. */
pesc_status chat_adapt(const chat_writer *w, const chat_request *r, json_t **out);
/* The reasoning of a message, without white space around it; n 0: none. */
slice chat_thought(const json_t *message);
/* Learns how the own template reads messages, by short conversations. */
pesc_status chat_learn(chat_writer *w);

/* chat_mask.c: sets flags[i], zero before, for the bytes of `whole` that are trained. r has JSON
 * messages. */
pesc_status chat_mask(const chat_writer *w, const chat_request *r, const jinja_text *whole,
                      unsigned char *flags);

#endif
