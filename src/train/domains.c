#include "train/domains.h"

#include "arch/param_group.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <string.h>

/* ---- the option ---- */

/* One of the comma-separated parts: a name, and the file of its choice. Both are copies. */
typedef struct entry {
    char *name, *file;
} entry;

static void entry_free(entry *e)
{
    mem_free(e->name);
    mem_free(e->file);
    *e = (entry){ 0 };
}

/* Reads the part at *p and moves on to the next. */
static pesc_status next_entry(const char **p, entry *out)
{
    size_t n = strcspn(*p, ","), name = strcspn(*p, "=");
    if (!name || name + 1 >= n)
        return fail(PESC_USAGE,
                    "domain_experts: found \"%.*s\", expected NAME=FILE, a domain and its "
                    "expert_cfg.json",
                    (int)n, *p);
    *out = (entry){ mem_strndup(*p, name), mem_strndup(*p + name + 1, n - name - 1) };
    *p += n + ((*p)[n] == ',');
    return out->name && out->file ? PESC_OK : fail_nomem("domain_experts", n);
}

int64_t domains_count(const char *text)
{
    int64_t n = text && *text;
    for (; text && *text; text++)
        n += *text == ',';
    return n;
}

static pesc_status add_choice(expertcfg *own, const entry *e, const config *c)
{
    expertcfg one = { 0 };
    for (size_t i = 0; i < own->n_domains; i++)
        if (strcmp(own->domains[i], e->name) == 0)
            return fail(PESC_USAGE, "domain_experts: names %s twice", e->name);
    if (own->n_domains == EXPERTCFG_DOMAINS)
        return fail(PESC_USAGE, "domain_experts: names more than %d domains", EXPERTCFG_DOMAINS);
    pesc_status s = expertcfg_read(&one, e->file);
    if (s == PESC_OK)
        s = param_check_chosen(&one, c, e->file);
    bool other = own->n_domains && (one.shared_experts != own->shared_experts ||
                                    one.non_expert_modules != own->non_expert_modules);
    if (s == PESC_OK && other)
        s = fail(PESC_USAGE,
                 "domain_experts: %s differs from the files before it in shared_experts or "
                 "non_expert_modules, which train on the records of all domains; give all files "
                 "the same",
                 e->file);
    if (s == PESC_OK)
        s = expertcfg_add_domain(own, e->name, &one);
    expertcfg_free(&one);
    return s;
}

pesc_status domains_read(expertcfg *own, const char *text, const config *c)
{
    pesc_status s = PESC_OK;
    for (const char *p = text; s == PESC_OK && *p;) {
        entry e = { 0 };
        s = next_entry(&p, &e);
        if (s == PESC_OK)
            s = add_choice(own, &e, c);
        entry_free(&e);
    }
    return s;
}

pesc_status domains_absolute(char **out, const char *text)
{
    str all = { 0 };
    pesc_status s = PESC_OK;
    for (const char *p = text; s == PESC_OK && *p;) {
        entry e = { 0 };
        char *file = NULL;
        s = next_entry(&p, &e);
        if (s == PESC_OK)
            s = io_absolute(&file, e.file);
        if (s == PESC_OK && strchr(file, ','))
            s = fail(PESC_USAGE,
                     "domain_experts: %s: has a comma in its path, which separates domains here; "
                     "put the file elsewhere",
                     file);
        if (s == PESC_OK)
            str_printf(&all, "%s%s=%s", all.n ? "," : "", e.name, file);
        mem_free(file);
        entry_free(&e);
    }
    if (s == PESC_OK && !str_ok(&all))
        s = fail_nomem("domain_experts", all.n);
    *out = all.p;
    return s;
}

/* ---- the records ---- */

/* Which of the domains a name is; n_domains: none. */
static size_t find_domain(const expertcfg *own, const char *name)
{
    size_t d = 0;
    while (d < own->n_domains && strcmp(own->domains[d], name) != 0)
        d++;
    return d;
}

static int64_t experts_of(const expertcfg *own, size_t domain)
{
    int64_t n = 0;
    for (size_t i = 0; i < own->n_layers; i++)
        for (int32_t k = 0; k < own->layers[i].n; k++)
            n += (own->layers[i].domains[k] & (uint64_t)1 << domain) != 0;
    return n;
}

pesc_status domains_check(const expertcfg *own, dataset *d)
{
    uint64_t records[EXPERTCFG_DOMAINS] = { 0 };
    for (uint64_t i = 0; i < dataset_count(d); i++) {
        const char *name;
        size_t number;
        TRY(dataset_domain(d, i, &number, &name));
        size_t at = find_domain(own, name);
        if (at == own->n_domains)
            return fail(PESC_USAGE,
                        "domain_experts: record %llu of the training data is of domain %s, which "
                        "has no choice of experts; give it one (%s=FILE), or leave the record out",
                        (unsigned long long)i + 1, name, name);
        records[at]++;
    }
    for (size_t k = 0; k < own->n_domains; k++) {
        if (!records[k])
            return fail(PESC_USAGE,
                        "domain_experts: no record of the training data is of domain %s; a domain "
                        "is the field \"domain\" of a record, or the name of its file",
                        own->domains[k]);
        log_notice("domain %s: %llu records train %lld experts", own->domains[k],
                   (unsigned long long)records[k], (long long)experts_of(own, k));
    }
    return PESC_OK;
}

/* ---- losses ---- */

void domains_clear(metrics_domain *sums, const expertcfg *own)
{
    for (size_t d = 0; d < own->n_domains; d++)
        sums[d] = (metrics_domain){ .name = own->domains[d] };
}

void domains_add(metrics_domain *sums, const step_totals *r, const batch *b)
{
    const double targets = (double)batch_targets(b);
    for (int32_t i = 0; i < batch_micros(b); i++) {
        const micro_batch m = batch_micro(b, i);
        double total = 0;
        if (!m.group)
            continue;
        metrics_domain *to = &sums[m.group - 1];
        for (int32_t k = 0; k < m.n_targets; k++)
            total += (double)m.weights[k];
        to->sum += totals_loss(r, i) * targets;
        to->weight += total * targets;
        to->targets += m.n_targets;
    }
}
