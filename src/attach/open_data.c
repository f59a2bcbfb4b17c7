/* open_data: a data set read as a model at a path would read it. */
#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "data/data.h"
#include "run/runmodel.h"

/* Vocabulary and chat format: the model's where the path is one, else the tokenizer's. */
static pesc_status open_set(pesc_data *d, const char *path, const pesc_data_options *opt)
{
    dataset_options o = { .paths = opt->data,
                          .n_paths = opt->n_data,
                          .seq_len = (int32_t)opt->seq_len,
                          .tok = d->tok,
                          .wanted = RECORD_ANY,
                          DATASET_RECORDS(opt) };
    pesc_model_info info = PESC_INIT(pesc_model_info);
    if (pesc_info(path, opt->base, NULL, &info) == PESC_OK) {
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

pesc_status pesc_data_open(pesc_data **out, const char *path, const pesc_data_options *opt,
                           const pesc_events *ev)
{
    status_clear();
    NEED(out);
    *out = NULL;
    NEED(path);
    LOG_EVENTS(ev);
    pesc_data_options o;
    TRY(options_take(PESC_OPTIONS_DATA, &o, opt));
    pesc_data *d = mem_zalloc(1, sizeof *d);
    if (!d)
        return fail_nomem("a data set", sizeof *d);
    pesc_status s = log_read_events(&d->events, ev, __func__);
    if (s == PESC_OK)
        s = runmodel_tokenizer(&d->tok, (runmodel_where){ path, o.base });
    if (s == PESC_OK)
        s = open_set(d, path, &o);
    if (s != PESC_OK) {
        pesc_data_close(d);
        return s;
    }
    *out = d;
    return PESC_OK;
}
