/* option_rows: makes rows of options (options.h) data: pesc_option. For a source file that has a
 * table of them, after <pesc/pesc.h>; not part of it. STRUCT is the struct whose fields the rows
 * are, WHICH its number. */
#ifndef PESC_OPTION_ROWS_H
#define PESC_OPTION_ROWS_H

#include <stddef.h>

#define NONE NULL
#define RANGE(least, most) .min = least, .max = most
#define ONE_OF(list) .values = list
#define NAMED(name) .values = name
#define YES_NO .values = NULL
#define DECIDES PESC_OPTION_DECIDES
#define LENGTH PESC_OPTION_LENGTH
#define PATH PESC_OPTION_PATH
#define UNSAVED PESC_OPTION_UNSAVED

/* Offsets of the field and of the count that a list has beside it. */
#define AT(key) .at = offsetof(STRUCT, key)
#define AT_TEXT AT
#define AT_CHAT(key) AT(chat_##key)
#define AT_CHOICE AT
#define AT_WORDS AT
#define AT_INT AT
#define AT_REAL AT
#define AT_AUTO_INT AT
#define AT_AUTO_REAL AT
#define AT_BOOL AT
#define AT_LIST(key) AT(key), .count_at = offsetof(STRUCT, n_##key)

#define ROW(kind_, key_, fallback_, accepts, flags_, group_, commands_, help_)                     \
    { .key = #key_,                                                                                \
      .kind = PESC_OPTION_##kind_,                                                                 \
      .of = WHICH,                                                                                 \
      AT_##kind_(key_),                                                                            \
      .fallback = fallback_,                                                                       \
      .flags = (flags_) | PESC_OPTION_##group_ << PESC_OPTION_GROUP,                               \
      .commands = commands_,                                                                       \
      .help = help_,                                                                               \
      accepts },

#endif
