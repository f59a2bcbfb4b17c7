/* modelfile: what Ollama needs besides a GGUF file. */
#ifndef PESC_CRAFT_MODELFILE_H
#define PESC_CRAFT_MODELFILE_H

#include "base/json.h"
#include "tokenizer/tokenizer.h"

typedef struct modelfile {
    const char *gguf;         /* the name of the file */
    const tokenizer *tok;     /* NULL: the model has none */
    const char *jinja;        /* its chat template; NULL: none */
    const json_t *generation; /* of generation_config.json; NULL: there is none */
} modelfile;

/* FROM ./gguf; TEMPLATE where the chat template is of a known format, else Ollama's own guess
 * stays; PARAMETER stop for what ends an answer; SYSTEM where the template has a message of its own
 * for a conversation without one; the recommended sampling. */
pesc_status modelfile_write(const char *path, const modelfile *m);

#endif
