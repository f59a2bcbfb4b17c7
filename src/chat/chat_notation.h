/* chat_notation: values of arguments that are not written as JSON. */
#ifndef PESC_CHAT_CHAT_NOTATION_H
#define PESC_CHAT_CHAT_NOTATION_H

#include "base/json.h"

/* How a family writes literals. */
typedef struct notation {
    const char *quote;    /* around a string; NULL: ' or ", with escapes by \ */
    char assigns;         /* between a name and its value */
    char closes;          /* after the last argument */
    const char *words[3]; /* true, false, null */
} notation;

extern const notation notation_python, notation_gemma4, notation_functiongemma;

/* Appends the JSON object of the arguments "name=value, ..."; false: they are not such. quote: that
 * of the notation, as it stands in the text; NULL likewise. */
bool notation_read(const notation *n, const char *quote, const char *text, size_t size, str *json);

/* A JSON value of any kind; NULL: the text is none, or there is no memory. The caller's. */
json_t *notation_json(const char *text, size_t n);

/* A value that a model wrote as bare text: of the types that the schema of the parameter declares,
 * the first that it fits, at last a string. parameters: the schema of all; NULL: none. */
json_t *notation_typed(const json_t *parameters, const char *key, const char *text, size_t n);
/* The schema of a parameter, in which references into `parameters` still lead somewhere; NULL:
 * none, or no memory. The caller's. text: whether a value of it may be a string. */
json_t *notation_schema(const json_t *parameters, const char *key, bool *text);

#endif
