/* cmd_data_mix: `pesc data mix`, one data set made of the files of several domains. */
#include "cli/command.h"
#include "cli/opt/input.h"
#include "cli/show/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The parts of a mixture: those that --domain names, or PESC's three domains, or a task with the
 * data its model was aligned on (ESFT). */
typedef struct mixture {
    pesc_mix_part *parts;
    size_t n;
    bool named; /* by --domain; else each part has an option of its own */
} mixture;

static const struct {
    const char *name;
    uint64_t records[3]; /* of general, code and maths */
} presets[] = {
    { "idae-500k", { 300000, 100000, 100000 } },
    { "idae-720k", { 360000, 180000, 180000 } },
};

static void free_parts(mixture *m)
{
    for (size_t i = 0; m->parts && i < m->n; i++)
        free((void *)(uintptr_t)m->parts[i].files);
    for (size_t i = 0; m->parts && m->named && i < m->n; i++)
        free((char *)(uintptr_t)m->parts[i].domain);
    free(m->parts);
}

/* ---- parts and their files ---- */

static pesc_status add_file(pesc_mix_part *p, const char *file)
{
    const char **files = realloc((void *)(uintptr_t)p->files, (p->n_files + 1) * sizeof *files);
    if (!files)
        return out_nomem("the files to mix");
    files[p->n_files++] = file;
    p->files = files;
    return PESC_OK;
}

/* "law=a.jsonl": a file of the part law, which begins with its first file. */
static pesc_status add_named(mixture *m, const char *text)
{
    size_t n = strcspn(text, "="), i = 0;
    if (n == 0 || text[n] != '=' || !text[n + 1])
        return out_fail(PESC_USAGE, "data mix: --domain: found \"%s\", expected NAME=FILE", text);
    while (i < m->n &&
           (strlen(m->parts[i].domain) != n || memcmp(m->parts[i].domain, text, n) != 0))
        i++;
    if (i == m->n) {
        m->parts[i].domain = strndup(text, n);
        if (!m->parts[i].domain)
            return out_nomem("the parts of a mixture");
        m->n++;
    }
    return add_file(&m->parts[i], text + n + 1);
}

static pesc_status add_fixed(mixture *m, const char *domain, const char *const *files, size_t n)
{
    pesc_mix_part *p = &m->parts[m->n++];
    p->domain = domain;
    for (size_t i = 0; i < n; i++)
        TRY(add_file(p, files[i]));
    return PESC_OK;
}

static pesc_status find_parts(mixture *m, const options *o)
{
    bool task = o->n_task || o->n_alignment, three = o->n_general || o->n_code || o->n_maths;
    m->named = o->n_domain > 0;
    m->parts = calloc(o->n_domain + 3, sizeof *m->parts);
    if (!m->parts)
        return out_nomem("the parts of a mixture");
    if (m->named && (task || three))
        return out_fail(PESC_USAGE,
                        "data mix: --domain names the parts; give %s as --domain "
                        "NAME=FILE too",
                        task ? "--task and --alignment" : "--general, --code and --maths");
    for (size_t i = 0; i < o->n_domain; i++)
        TRY(add_named(m, o->domain[i]));
    if (m->named)
        return PESC_OK;
    if (task) {
        TRY(add_fixed(m, "task", o->task, o->n_task));
        return add_fixed(m, "alignment", o->alignment, o->n_alignment);
    }
    TRY(add_fixed(m, "general", o->general, o->n_general));
    TRY(add_fixed(m, "code", o->code, o->n_code));
    return add_fixed(m, "maths", o->maths, o->n_maths);
}

/* ---- how many records of each ---- */

/* "3,1,1": one number of 0 or more for each part. */
static bool read_numbers(const char *text, double *out, size_t n, bool whole)
{
    for (size_t i = 0; i < n; i++) {
        char *end = NULL;
        int64_t v = 0;
        size_t len = strcspn(text, ",");
        bool fine = len > 0 && strspn(text, "0123456789.") == len;
        if (whole)
            fine = fine && input_int(text, len, 0, INT32_MAX, &v);
        out[i] = whole ? (double)v : strtod(text, &end);
        if (!fine || (!whole && end != text + len) || (text[len] == ',') != (i + 1 < n))
            return false;
        text += len + 1;
    }
    return true;
}

/* The total divided by weights: whole numbers that add up to it, each less than 1 from its share.
 */
static void divide(const double *weights, size_t n, uint64_t total, pesc_mix_part *parts)
{
    double sum = 0, rest = 0;
    uint64_t given = 0;
    for (size_t i = 0; i < n; i++)
        sum += weights[i];
    for (size_t i = 0; i < n; i++) {
        rest += weights[i] / sum * (double)total;
        uint64_t upto = i + 1 == n ? total : (uint64_t)(rest + 0.5);
        parts[i].records = upto - given;
        given = upto;
    }
}

static pesc_status refuse_numbers(const mixture *m, const char *option, const char *found)
{
    char names[512] = "";
    for (size_t i = 0; i < m->n; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                 i == 0         ? ""
                 : i + 1 < m->n ? ", "
                                : " and ",
                 m->parts[i].domain);
    return out_fail(PESC_USAGE, "data mix: --%s: found \"%s\", expected %zu numbers, of %s", option,
                    found, m->n, names);
}

static pesc_status from_counts(mixture *m, const options *o, double *numbers)
{
    if (!read_numbers(o->counts, numbers, m->n, true))
        return refuse_numbers(m, "counts", o->counts);
    for (size_t i = 0; i < m->n; i++)
        m->parts[i].records = (uint64_t)numbers[i];
    return PESC_OK;
}

static pesc_status from_total(mixture *m, const options *o, double *numbers)
{
    double sum = 0;
    for (size_t i = 0; i < m->n; i++)
        numbers[i] = 1;
    if (o->weights && !read_numbers(o->weights, numbers, m->n, false))
        return refuse_numbers(m, "weights", o->weights);
    for (size_t i = 0; i < m->n; i++)
        sum += numbers[i];
    if (!(sum > 0))
        return refuse_numbers(m, "weights", o->weights);
    divide(numbers, m->n, (uint64_t)o->total, m->parts);
    return PESC_OK;
}

static pesc_status wanted(mixture *m, const options *o)
{
    bool three = !m->named && m->n == 3;
    double *numbers = calloc(m->n, sizeof *numbers);
    pesc_status s = numbers ? PESC_OK : out_nomem("the parts of a mixture");
    if (s == PESC_OK && o->counts)
        s = from_counts(m, o, numbers);
    else if (s == PESC_OK && o->total)
        s = from_total(m, o, numbers);
    else if (s == PESC_OK && !(o->preset && three))
        s = out_fail(PESC_USAGE, "data mix: %s is missing: how many records of each",
                     three ? "--preset, --counts or --total" : "--counts or --total");
    else
        for (size_t i = 0; s == PESC_OK && i < sizeof presets / sizeof *presets; i++)
            for (size_t k = 0; strcmp(o->preset, presets[i].name) == 0 && k < m->n; k++)
                m->parts[k].records = presets[i].records[k];
    free(numbers);
    return s;
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
        out_fields("path=%s records=%ld", o->output, total);
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
        out_object(NULL, "domain=%s records=%ld available=%ld duplicates=%ld unusable=%ld",
                   p->domain, p->records, p->available, p->duplicates, p->unusable);
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

/* How many parts are used and how many records they give. */
static pesc_status count_used(const mixture *m, const options *o, size_t *n, uint64_t *total)
{
    *n = 0;
    *total = 0;
    for (size_t i = 0; i < m->n; i++) {
        pesc_mix_part *p = &m->parts[i];
        TRY(check_apart(o->output, p));
        if (p->records > 0 && p->n_files == 0)
            return out_fail(PESC_USAGE,
                            "data mix: --%s is missing: %" PRIu64 " records of it are wanted",
                            p->domain, p->records);
        *total += p->records;
        *n += p->records > 0;
    }
    return *total ? PESC_OK : out_fail(PESC_USAGE, "data mix: --counts: no record is wanted");
}

static pesc_status mix(const mixture *m, const options *o)
{
    size_t n;
    uint64_t total;
    TRY(count_used(m, o, &n, &total));
    pesc_mix_part *used = calloc(n, sizeof *used);
    if (!used)
        return out_nomem("the parts of a mixture");
    for (size_t i = 0, k = 0; i < m->n; i++)
        if (m->parts[i].records > 0)
            used[k++] = m->parts[i];
    for (size_t i = 0; i < n; i++)
        used[i].unpack_ratio = o->data.unpack_ratio;
    pesc_status s = pesc_data_mix(used, n, (uint64_t)o->seed, o->output, progress_events());
    if (s == PESC_OK)
        print_parts(o, used, n, total);
    free(used);
    return s;
}

pesc_status data_mix(const options *o)
{
    mixture m = { 0 };
    TRY(check_request(o));
    pesc_status s = find_parts(&m, o);
    if (s == PESC_OK)
        s = wanted(&m, o);
    if (s == PESC_OK)
        s = mix(&m, o);
    free_parts(&m);
    return s;
}
