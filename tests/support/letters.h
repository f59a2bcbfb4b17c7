/* letters: a tokenizer of single characters, the merge "\n\n" and control tokens, so that what is
 * encoded can be read back token by token. */
#ifndef TESTS_SUPPORT_LETTERS_H
#define TESTS_SUPPORT_LETTERS_H

#include "tokenizer/tokenizer.h"

#include <jansson.h>

enum { LETTERS_CONTROL = 200 }; /* the id of the first control token; a letter's id is its code */

/* Writes tokenizer.json to files_path(""). */
void letters_put(const char *const *control, int n);

/* The tokenizer in files_path(""), with this chat template in its configuration: any JSON, which is
 * taken. */
tokenizer *letters_open(json_t *template);

#endif
