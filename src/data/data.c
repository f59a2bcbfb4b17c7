#include "data/data.h"

#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"

void pesc_data_close(pesc_data *d)
{
    if (!d)
        return;
    dataset_close(d->set);
    pesc_tokenizer_close(d->tok);
    mem_free(d);
}

uint64_t pesc_data_records(const pesc_data *d)
{
    return d ? dataset_count(d->set) : 0;
}

const char *pesc_data_format(const pesc_data *d, size_t file)
{
    return d ? dataset_format(d->set, file) : "";
}

const char *pesc_data_template(const pesc_data *d)
{
    return d ? dataset_template(d->set) : "";
}

const pesc_tokenizer *pesc_data_tokenizer(const pesc_data *d)
{
    return d ? d->tok : NULL;
}

static pesc_status check_index(const pesc_data *d, uint64_t index)
{
    uint64_t n = dataset_count(d->set);
    return index < n ? PESC_OK
                     : fail(PESC_USAGE, "record %llu: there are %llu", (unsigned long long)index,
                            (unsigned long long)n);
}

pesc_status pesc_data_record(pesc_data *d, uint64_t index, const int32_t **ids,
                             const int32_t **labels, size_t *n)
{
    status_clear();
    NEED(d);
    NEED(ids);
    NEED(labels);
    NEED(n);
    LOG_EVENTS(&d->events);
    TRY(check_index(d, index));
    const sequence *samples;
    size_t n_samples;
    TRY(dataset_samples(d->set, index, &samples, &n_samples));
    *ids = n_samples ? samples->ids : NULL; /* samples lie one after the other */
    *labels = n_samples ? samples->labels : NULL;
    *n = 0;
    for (size_t i = 0; i < n_samples; i++)
        *n += (size_t)samples[i].n;
    return PESC_OK;
}

pesc_status pesc_data_answers(pesc_data *d, uint64_t index, pesc_data_answer out[2], size_t *n)
{
    static const char *const roles[][3] = { { "", "desirable", "undesirable" },
                                            { "", "chosen", "rejected" } };
    status_clear();
    NEED(d);
    NEED(out);
    NEED(n);
    LOG_EVENTS(&d->events);
    TRY(check_index(d, index));
    const sequence *all;
    size_t n_all;
    TRY(dataset_samples(d->set, index, &all, &n_all));
    *n = 0;
    for (size_t i = 0; i < n_all; i++) {
        bool more = i && all[i].role == ANSWER_ONLY; /* samples lie one after the other */
        if (more)
            out[0].n += (size_t)all[i].n;
        else
            out[(*n)++] = (pesc_data_answer){ .ids = all[i].ids,
                                              .labels = all[i].labels,
                                              .n = (size_t)all[i].n,
                                              .role = roles[n_all > 1][all[i].role] };
    }
    return PESC_OK;
}

pesc_status pesc_data_domain(pesc_data *d, uint64_t index, size_t *number, const char **name)
{
    status_clear();
    NEED(d);
    NEED(number);
    NEED(name);
    LOG_EVENTS(&d->events);
    TRY(check_index(d, index));
    return dataset_domain(d->set, index, number, name);
}
