/* jinja: an interpreter of Jinja templates as chat templates and evaluation tasks use the language.
 *
 * A template is compiled once and rendered any number of times, from any number of threads. The
 * result is that of jinja2's ImmutableSandboxedEnvironment with the settings of Hugging Face's
 * apply_chat_template: trim_blocks, lstrip_blocks, loop controls, tojson without HTML escapes,
 * raise_exception, strftime_now and {% generation %}. What is not supported (extends, include,
 * import, block, recursive loops, some filters) is refused when the template is compiled, with its
 * line.
 *
 * A template and the values it works on may come from anywhere, so a rendering has limits: steps,
 * depth of nesting, memory and bytes of output. There are no loops without an end and no access to
 * anything but the variables given.
 *
 * Every byte of the output carries its origin: the template itself, or the variable that it was
 * copied from. The tokenizer uses this to keep control tokens written in a message as text. */
#ifndef PESC_JINJA_JINJA_H
#define PESC_JINJA_JINJA_H

#include "base/json.h"
#include "base/status.h"

#include <time.h>

typedef struct jinja_template jinja_template;

/* Compiles n bytes of UTF-8; the source is copied. `where` names the template in messages and must
 * outlive it; NULL for one of pesc's own, whose raise_exception() gives the whole message.
 * PESC_FORMAT: a syntax error; PESC_UNSUPPORTED: a construct that is not supported. The message has
 * the line: "WHERE: line 3: ...". */
pesc_status jinja_compile(jinja_template **out, const char *source, size_t n, const char *where);

/* How a template is read. All zero: as chat templates are, see above. */
typedef struct jinja_settings {
    bool plain;  /* without trim_blocks and lstrip_blocks; a last newline is kept */
    bool strict; /* StrictUndefined: a value that is undefined fails where it is used */
    const struct jbuiltin *filters; /* more of them (jinja_builtin.h); NULL: none */
} jinja_settings;
pesc_status jinja_compile_as(jinja_template **out, const char *source, size_t n, const char *where,
                             const jinja_settings *as);
void jinja_free(jinja_template *t);                         /* NULL is allowed */
bool jinja_has_generation(const jinja_template *t);         /* whether it has {% generation %} */
bool jinja_uses(const jinja_template *t, const char *name); /* whether it reads that variable */

/* Limits of one rendering; 0 takes the value given here. */
typedef struct jinja_limits {
    uint64_t steps; /* nodes evaluated and elements visited: 20 million */
    size_t memory;  /* bytes of all values together: 256 MiB */
    size_t output;  /* bytes of the text: 32 MiB */
} jinja_limits;

/* Where bytes come from: the low bits of jinja_text.origin. */
enum {
    JINJA_TEMPLATE = 0,       /* the template, or a trusted variable */
    JINJA_MESSAGE = 1,        /* messages[0]; JINJA_MESSAGE + i is messages[i] */
    JINJA_DATA = 0x7fff,      /* any other variable, or a message with a large number */
    JINJA_GENERATED = 0x8000, /* flag: inside {% generation %} */
};

typedef struct jinja_input {
    const json_t *variables; /* an object, borrowed; may be NULL */
    const json_t *trusted;   /* an object whose strings count as the template's own: bos_token */
    const struct tm *now;    /* what strftime_now() shows, local time; NULL: the current time */
    jinja_limits limits;
    uint64_t *steps; /* the steps taken are added; NULL: not asked for */
} jinja_input;

typedef struct jinja_text {
    char *text; /* NUL-terminated */
    size_t n;
    uint16_t *origin; /* [n] */
} jinja_text;

/* PESC_USAGE: the template refused its input with raise_exception(), whose text is the message.
 * PESC_FORMAT: an operation failed (a value that is undefined or of the wrong type), or a limit was
 * reached. Both messages have the line. On failure *out is empty. */
pesc_status jinja_render(const jinja_template *t, const jinja_input *in, jinja_text *out);
void jinja_text_free(jinja_text *text);

/* The value of a template that is one {{ expression }}: a new reference; lists and dictionaries
 * stay what they are. Any other template gives its text. Fails like jinja_render(). */
pesc_status jinja_value(const jinja_template *t, const jinja_input *in, json_t **out);

#endif
