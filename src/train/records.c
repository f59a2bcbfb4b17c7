/* records: opens data as training with a given model reads it. */
#include "base/mem.h"
#include "data/data.h"
#include "format/hfdir.h"

/* Vocabulary and chat format: the model's where the path is one, else the tokenizer's. */
static pesc_status open_set(pesc_data *d, const char *path, const pesc_data_options *opt)
{
    dataset_options o = { .paths = opt->data,
                          .n_paths = opt->n_data,
                          .format = opt->format,
                          .template = opt->chat_template,
                          .seq_len = (int32_t)opt->seq_len,
                          .tok = d->tok };
    pesc_model_info info;
    if (pesc_info(path, &info) == PESC_OK) {
        o.vocab = (int32_t)info.vocab;
        o.chat = chat_find(info.chat);
    } else if (d->tok) {
        const char *jinja = tokenizer_chat_template(d->tok);
        o.vocab = (int32_t)tokenizer_size(d->tok);
        o.chat = jinja ? chat_recognise(jinja) : NULL;
    } else {
        return fail(PESC_IO, "%s: is no model and has no tokenizer", path);
    }
    return dataset_open(&d->set, &o);
}

pesc_status pesc_data_open(pesc_data **out, const char *path, const pesc_data_options *opt)
{
    status_clear();
    *out = NULL;
    if (opt->seq_len < 2 || opt->seq_len > INT32_MAX)
        return fail(PESC_USAGE, "seq_len: found %lld, expected 2 or more", (long long)opt->seq_len);
    pesc_data *d = mem_zalloc(1, sizeof *d);
    if (!d)
        return fail_nomem("a data set", sizeof *d);
    d->seq_len = opt->seq_len;
    pesc_status s = hfdir_tokenizer(&d->tok, path);
    if (s == PESC_OK)
        s = open_set(d, path, opt);
    if (s != PESC_OK) {
        pesc_data_close(d);
        return s;
    }
    *out = d;
    return PESC_OK;
}
