/* modelname: the path that the name of a model stands for.
 *
 * org/name, where there is no such directory here, is a model in Hugging Face's cache of downloads:
 * HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub (with XDG_CACHE_HOME). A directory
 * without config.json in which `pesc export --to gguf` wrote model.gguf stands for that file. Any
 * other name is a path. */
#ifndef PESC_FORMAT_MODELNAME_H
#define PESC_FORMAT_MODELNAME_H

#include "base/status.h"

/* The path, for mem_free(). PESC_IO, with the command that downloads it, for org/name that is
 * neither here nor in the cache. */
pesc_status modelname_find(char **out, const char *name);

/* The same for a data set, org/name; NULL in *out for any other name. */
pesc_status modelname_data(char **out, const char *name);

#endif
