#include "cli/mixture.h"

#include "cli/command.h"
#include "cli/num.h"
#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DOMAINS = 3 };

/* The parts of a mixture: the three domains of PESC, or a task and alignment data (ESFT). */
typedef struct blend {
    int n;
    const char *expected; /* of --counts */
} blend;
static const blend domains = { DOMAINS, "general, code and maths: 300000,100000,100000" };
static const blend task = { 2, "task and alignment: 10000,10000" };

static const struct {
    const char *name;
    uint64_t records[DOMAINS];
} presets[] = {
    { "idae-500k", { 300000, 100000, 100000 } },
    { "idae-720k", { 360000, 180000, 180000 } },
};

/* "300000,100000,100000" */
static bool read_counts(const char *text, pesc_mix_part *parts, int count)
{
    for (int i = 0; i < count; i++) {
        size_t n = strcspn(text, ",");
        int64_t v;
        if (!num_int(text, n, 0, INT32_MAX, &v) || (text[n] == ',') != (i < count - 1))
            return false;
        parts[i].records = (uint64_t)v;
        text += n + 1;
    }
    return true;
}

static pesc_status wanted(const options *o, const blend *b, pesc_mix_part *parts)
{
    if (o->counts && !read_counts(o->counts, parts, b->n))
        return out_fail(PESC_USAGE, "data mix: --counts: found \"%s\", expected the records of %s",
                        o->counts, b->expected);
    if (o->counts)
        return PESC_OK;
    if (!o->preset || b != &domains)
        return out_fail(PESC_USAGE, "data mix: %s is missing: how many records of each",
                        b == &domains ? "--preset or --counts" : "--counts");
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        for (int k = 0; strcmp(o->preset, presets[i].name) == 0 && k < b->n; k++)
            parts[k].records = presets[i].records[k];
    return PESC_OK;
}

/* Refuses an output that is one of the inputs. */
static pesc_status check_apart(const char *output, const pesc_mix_part *part)
{
    struct stat to, from;
    if (stat(output, &to) != 0)
        return PESC_OK;
    if (S_ISDIR(to.st_mode))
        return out_fail(PESC_USAGE, "data mix: %s is a directory; give the file to write", output);
    for (size_t i = 0; i < part->n_files; i++)
        if (stat(part->files[i], &from) == 0 && from.st_dev == to.st_dev &&
            from.st_ino == to.st_ino)
            return out_fail(PESC_USAGE, "data mix: %s is one of the files to mix; give another -o",
                            output);
    return PESC_OK;
}

static void print_parts(const options *o, const pesc_mix_part *parts, size_t n, uint64_t total)
{
    if (o->json) {
        out_begin(NULL, '{');
        out_text("path", o->output);
        out_int("records", (int64_t)total);
        out_begin("parts", '[');
    }
    for (size_t i = 0; i < n; i++) {
        const pesc_mix_part *p = &parts[i];
        if (!o->json) {
            printf("%-8s %9" PRIu64 " of %" PRIu64 " records; left out %" PRIu64
                   " duplicates, %" PRIu64 " without prompt or answer\n",
                   p->domain, p->records, p->available, p->duplicates, p->unusable);
            continue;
        }
        out_begin(NULL, '{');
        out_text("domain", p->domain);
        out_int("records", (int64_t)p->records);
        out_int("available", (int64_t)p->available);
        out_int("duplicates", (int64_t)p->duplicates);
        out_int("unusable", (int64_t)p->unusable);
        out_end();
    }
    if (o->json) {
        out_end();
        out_end();
    } else {
        printf("%s: %" PRIu64 " records; %s.mix.json says how it was made\n", o->output, total,
               o->output);
    }
}

static pesc_status check_request(const options *o)
{
    if (o->model)
        return out_fail(PESC_USAGE, "data mix: unexpected argument \"%s\"; mix takes no model",
                        o->model);
    if (!o->output)
        return out_fail(PESC_USAGE, "data mix: --output is missing: the file to write");
    if (!o->overwrite && access(o->output, F_OK) == 0)
        return out_fail(PESC_USAGE, "data mix: %s exists already; --overwrite replaces it",
                        o->output);
    return PESC_OK;
}

pesc_status mixture_run(const options *o)
{
    const blend *b = o->n_task || o->n_alignment ? &task : &domains;
    pesc_mix_part three[DOMAINS] = {
        { .domain = "general", .files = o->general, .n_files = o->n_general },
        { .domain = "code", .files = o->code, .n_files = o->n_code },
        { .domain = "maths", .files = o->maths, .n_files = o->n_maths }
    };
    pesc_mix_part two[] = {
        { .domain = "task", .files = o->task, .n_files = o->n_task },
        { .domain = "alignment", .files = o->alignment, .n_files = o->n_alignment }
    };
    pesc_mix_part *all = b == &task ? two : three, used[DOMAINS];
    size_t n = 0;
    uint64_t total = 0;
    TRY(check_request(o));
    TRY(wanted(o, b, all));
    for (int i = 0; i < b->n; i++) {
        TRY(check_apart(o->output, &all[i]));
        if (all[i].records > 0 && all[i].n_files == 0)
            return out_fail(PESC_USAGE,
                            "data mix: --%s is missing: %" PRIu64 " records of it are wanted",
                            all[i].domain, all[i].records);
        if (all[i].records > 0)
            used[n++] = all[i];
        total += all[i].records;
    }
    if (total == 0)
        return out_fail(PESC_USAGE, "data mix: --counts: no record is wanted");
    TRY(pesc_data_mix(used, n, (uint64_t)o->seed, o->output, progress_events()));
    print_parts(o, used, n, total);
    return PESC_OK;
}
