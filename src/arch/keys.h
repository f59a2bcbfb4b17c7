/* keys: config.json's plain keys, by the tables of family.h.
 *
 * A key that would change the function and is not understood is refused by name; any other unknown
 * key is harmless and ignored. */
#ifndef PESC_ARCH_KEYS_H
#define PESC_ARCH_KEYS_H

#include "arch/family.h"

/* Fills the facts of one table (NULL: none), which ends with a row without names. */
pesc_status keys_read(config *c, json_where w, const config_key *keys);

/* Refuses keys that ask for what this family cannot do. */
pesc_status keys_guard(const family *f, json_where w);

#endif
