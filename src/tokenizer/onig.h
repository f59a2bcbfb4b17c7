/* onig: the regular expressions of tokenizer.json, rewritten for PCRE2.
 *
 * Hugging Face compiles them with Oniguruma's Ruby syntax. Most of what tokenizers use is spelled
 * the same; what is not is rewritten here (\s \w \h, scripts, option letters, POSIX brackets), and
 * what has no equivalent (class intersections, {n}+ ) is refused by name. */
#ifndef PESC_TOKENIZER_ONIG_H
#define PESC_TOKENIZER_ONIG_H

#include "base/status.h"
#include "base/str.h"

/* Appends to `out`; `where` names the pattern in messages. `newer` writes out characters that PCRE2
 * may not know yet (see newchars.h). */
pesc_status onig_to_pcre2(const char *pattern, size_t n, bool newer, const char *where, str *out);

#endif
