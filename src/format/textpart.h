/* textpart: the language model inside a model that also sees or hears. Its config.json is under
 * text_config; its tensors are among those of the other parts, under a prefix that weights.h drops.
 */
#ifndef PESC_FORMAT_TEXTPART_H
#define PESC_FORMAT_TEXTPART_H

#include "format/weights.h"

/* Makes *config that of the text where it is one of the kinds that pesc knows; *found says so. */
pesc_status textpart_take(json_t **config, const char *file, bool *found);

/* Leaves out the tensors of the other parts. */
pesc_status textpart_keep(weights *ws);

#endif
