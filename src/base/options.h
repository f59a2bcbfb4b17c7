/* options: the rows of <pesc/options.h> as one table, and everything that is done with a struct of
 * options by walking it: defaults, range checks, YAML, hash.
 *
 * What a rule about several options together says (top_k is at most experts) is not here: that is
 * written where the options are used. */
#ifndef PESC_BASE_OPTIONS_H
#define PESC_BASE_OPTIONS_H

#include "base/status.h"
#include "base/str.h"

/* Copies a caller's struct into a whole one, *out, and checks it. Fields that the caller's size
 * does not cover, and texts that are NULL or "", get their defaults; given NULL: all do.
 * PESC_USAGE: a size that no release had, or a value outside its range. */
pesc_status options_take(pesc_option_struct which, void *out, const void *given);

/* PESC_USAGE: "lr: found -1, expected a number from 0 to 1e30". */
pesc_status options_check(pesc_option_struct which, const void *options);

/* Whether all texts are UTF-8, as a YAML file must be. */
pesc_status options_check_utf8(pesc_option_struct which, const void *options);

/* One line "key: value" for each option that has a value and is not UNSAVED; paths are absolute. */
void options_yaml(pesc_option_struct which, const void *options, str *out);

/* Of the options that have the flag DECIDES and none of the flags `except`. Values at their
 * defaults do not enter it, so a later row with a default that changes nothing leaves it as it is.
 */
uint64_t options_hash(pesc_option_struct which, const void *options, unsigned except);

/* Of two YAML texts, all keys that the hash looks at and whose values differ: "lr 0.1, now 0.2;
 * clip 0.3, now 1". A key that is absent has its default. "" where none differs. */
void options_changed(pesc_option_struct which, const char *then, const char *now, unsigned except,
                     str *out);

/* The value of a key in such a text, without quotes, copied to out[cap]; the default of its row
 * where it is absent. */
void options_value(pesc_option_struct which, const char *yaml, const char *key, char *out,
                   size_t cap);

#endif
