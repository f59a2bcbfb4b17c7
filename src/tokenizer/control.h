/* control: tokens that have the form of a control token, such as <|im_start|>.
 *
 * Most files say which of their tokens are control tokens. SentencePiece models and GGUF files
 * often do not: there a turn delimiter may be an ordinary user-defined piece. */
#ifndef PESC_TOKENIZER_CONTROL_H
#define PESC_TOKENIZER_CONTROL_H

#include <stdbool.h>
#include <stddef.h>

bool control_form(const char *text, size_t n);

#endif
