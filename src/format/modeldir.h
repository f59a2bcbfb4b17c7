/* modeldir: writing a Hugging Face model directory: everything but the weights themselves. It knows
 * which files are a tokenizer's.
 *
 * It is written as a draft (io_draft_open), which takes its place as a whole. */
#ifndef PESC_FORMAT_MODELDIR_H
#define PESC_FORMAT_MODELDIR_H

#include "base/json.h"

enum {
    /* The largest file of weights: what hubs and other programs expect. */
    MODELDIR_SHARD_MB = 5000,
};

/* PESC_DISK, with both figures, when the file system has no room for so many bytes. The directory
 * need not be there yet. */
pesc_status modeldir_check_room(const char *dir, uint64_t bytes);

/* Copies tokenizer files and generation_config.json from a directory, whichever are there, or the
 * one file that `from` is, whatever its name; of a GGUF file its tokenizer is written as Hugging
 * Face's files. */
pesc_status modeldir_copy_tokenizer(const char *from, const char *dir);

/* The same for the tokenizer that a user named: PESC_IO where `from` has none. */
pesc_status modeldir_copy_named_tokenizer(const char *from, const char *dir);

/* Names a class of transformers in the tokenizer_config.json of a directory that has a tokenizer,
 * where it names none, with the tokens that begin and end a text: for a model_type by which
 * AutoTokenizer finds no class. */
pesc_status modeldir_name_tokenizer(const char *dir);

/* Copies chat_template.jinja alone; fine when there is none. */
pesc_status modeldir_copy_template(const char *from, const char *dir);

/* XXH3 of the names and bytes of the tokenizer files in a directory; 0 when it has none. */
pesc_status modeldir_hash_tokenizer(const char *dir, uint64_t *out);

/* dir/name, indented, keys sorted as transformers writes them. */
pesc_status modeldir_write_json(const char *dir, const char *name, const json_t *json);

/* The list of the files of a directory: every one that pesc writes has it. Only a directory that
 * has one is replaced (pesc_model_replace), and only the files on the list go. `last` is a file
 * that is still to come, and may be NULL. */
#define MODELDIR_LIST ".pesc-files.json"
#define MODELDIR_FORMAT "pesc-model"
pesc_status modeldir_list(const char *dir, const char *last);

/* The last file of a directory, after that list. */
pesc_status modeldir_finish(const char *dir, const char *name, const json_t *json);

#endif
