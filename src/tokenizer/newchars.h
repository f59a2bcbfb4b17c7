/* newchars: characters younger than the tables of PCRE2.
 *
 * Hugging Face's patterns know Unicode 17, Debian's PCRE2 Unicode 14: a letter that came in between
 * would fall on the other side of a word's end. A pattern is therefore compiled a second time, with
 * these characters written out in its classes, and that one is used for the rare text that holds
 * any of them. With a newer PCRE2 both mean the same. */
#ifndef PESC_TOKENIZER_NEWCHARS_H
#define PESC_TOKENIZER_NEWCHARS_H

#include "base/str.h"

/* Whether valid UTF-8 holds such a character. */
bool newchars_in(const char *text, size_t n);

/* Appends those of a general category ("L", "Nd"), of Alphabetic, Lowercase or Uppercase, those
 * that are not of category C ("Graphic"), or of a script ("sc:Latin") as the inside of a PCRE2
 * class. */
void newchars_class(str *out, const char *what, size_t n);

#endif
