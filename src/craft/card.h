/* card: the model card, README.md, of a model that is made: what it is, what it was made from and
 * how it was trained, the figures of its run, and the licence that its base states. */
#ifndef PESC_CRAFT_CARD_H
#define PESC_CRAFT_CARD_H

#include "craft/target.h"

/* Beside a file NAME.gguf it is NAME.README.md. */
pesc_status card_write(const target_model *p);

/* What the base says of its licence, in the first lines of its own card or in the metadata of a
 * GGUF file: letters, digits, dots and dashes. "": nothing. */
enum { CARD_LICENCE = 64 };
pesc_status card_licence(const source_model *from, char out[CARD_LICENCE]);

#endif
