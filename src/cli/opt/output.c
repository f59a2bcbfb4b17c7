#include "cli/opt/output.h"

#include "cli/command.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The model that replaces another is written under this name beside it. A process that was killed
 * leaves it, and the library removes it (io_draft_settle). */
#define FRESH ".tmp.pesc-new"

/* Whether the directory exists and is not empty. What interrupted processes left does not count:
 * the library removes it. */
static bool is_occupied(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d)
        return false;
    int n = 0;
    for (const struct dirent *e; n == 0 && (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
             strncmp(e->d_name, ".tmp.pesc-", 10) != 0;
    closedir(d);
    return n > 0;
}

static int discard_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    (void)remove(path);
    return 0;
}

/* Removes a directory of ours with all that is in it. */
static void discard(const char *dir)
{
    (void)nftw(dir, discard_one, 8, FTW_DEPTH | FTW_PHYS);
}

static pesc_status name_fresh(const options *o, const char *path, char fresh[PATH_MAX])
{
    if (snprintf(fresh, PATH_MAX - 256, "%s" FRESH, path) >= PATH_MAX - 256)
        return out_fail(PESC_USAGE, "%s: -o: found a name of %zu bytes, expected a shorter one",
                        o->cmd->name, strlen(o->output));
    return PESC_OK;
}

static pesc_status overwrite(const options *o, replace_fn make, void *ud)
{
    char real[PATH_MAX], fresh[PATH_MAX]; /* beside the directory itself, not beside a link to it */
    const char *dir = realpath(o->output, real) ? real : o->output;
    TRY(name_fresh(o, dir, fresh));
    pesc_status st = make(o, fresh, ud);
    if (st == PESC_OK)
        st = pesc_model_replace(fresh, o->output);
    if (st != PESC_OK)
        discard(fresh);
    return st;
}

pesc_status replace_dir(const options *o, replace_fn make, void *ud)
{
    if (!o->output)
        return opt_missing(o, "-o DIR");
    if (!*o->output)
        return out_fail(PESC_USAGE, "%s: -o: found nothing, expected DIR", o->cmd->name);
    struct stat there;
    if (stat(o->output, &there) == 0 && !S_ISDIR(there.st_mode))
        return out_fail(PESC_USAGE, "%s: is not a directory; give another -o", o->output);
    bool occupied = is_occupied(o->output);
    const char *const inputs[] = { o->model,           o->config_json,      o->tokenizer,
                                   o->craft.tokenizer, o->export.tokenizer, o->export.lora,
                                   o->load.patch };
    if (occupied && o->overwrite)
        TRY(pesc_model_check_replace(o->output, inputs, sizeof inputs / sizeof *inputs));
    if (!o->overwrite && occupied)
        return out_fail(PESC_USAGE, "%s: is not empty; give another -o, or --overwrite", o->output);
    return occupied ? overwrite(o, make, ud) : make(o, o->output, ud);
}

/* ---- one file ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Everything in the fresh directory takes its place beside the file, the file itself last. */
static pesc_status move_out(const char *fresh, const char *file)
{
    char from[PATH_MAX], to[PATH_MAX];
    const char *name = base_name(file);
    int dir = (int)(name - file);
    for (int last = 0; last < 2; last++) {
        DIR *d = opendir(fresh);
        bool moved = d != NULL;
        for (const struct dirent *e; moved && (e = readdir(d));) {
            bool is_file = strcmp(e->d_name, name) == 0;
            if (e->d_name[0] == '.' || is_file != (last == 1))
                continue;
            moved = snprintf(from, sizeof from, "%s/%s", fresh, e->d_name) < (int)sizeof from &&
                    snprintf(to, sizeof to, "%.*s%s", dir, file, e->d_name) < (int)sizeof to &&
                    rename(from, to) == 0;
        }
        if (d)
            closedir(d);
        if (!moved)
            return out_fail(PESC_DISK, "%s: cannot be written: %s", file, strerror(errno));
    }
    return PESC_OK;
}

static pesc_status overwrite_file(const options *o, replace_fn make, void *ud)
{
    char fresh[PATH_MAX], file[PATH_MAX], model[PATH_MAX], real[PATH_MAX];
    if (realpath(o->output, real) && realpath(o->model, model) && strcmp(real, model) == 0)
        return out_fail(PESC_USAGE, "%s: is the model itself; give another -o", o->output);
    TRY(name_fresh(o, o->output, fresh));
    discard(fresh); /* of a process that was killed */
    if (mkdir(fresh, 0777) != 0)
        return out_fail(PESC_DISK, "%s: cannot be written: %s", fresh, strerror(errno));
    pesc_status st =
        snprintf(file, sizeof file, "%s/%s", fresh, base_name(o->output)) < (int)sizeof file
            ? make(o, file, ud)
            : out_fail(PESC_USAGE, "%s: -o: the name is too long", o->cmd->name);
    if (st == PESC_OK)
        st = move_out(fresh, o->output);
    discard(fresh);
    return st;
}

pesc_status replace_file(const options *o, replace_fn make, void *ud)
{
    struct stat there;
    if (stat(o->output, &there) != 0)
        return make(o, o->output, ud);
    if (!S_ISREG(there.st_mode))
        return out_fail(PESC_USAGE, "%s: is not a file; give another -o", o->output);
    TRY(pesc_model_check_replace(o->output, NULL, 0));
    if (!o->overwrite)
        return out_fail(PESC_USAGE, "%s: exists; give another -o, or --overwrite", o->output);
    return overwrite_file(o, make, ud);
}

/* ---- what was written ---- */

static void compare_json(const pesc_logit_check *check, double relative)
{
    out_object("identity",
               "logits=%lu differ=%lu max_diff=%.6g relative=%.6g kl=%.6g positions=%lu "
               "greedy_same=%lu beyond_rounding=%lu",
               check->logits, check->differ, check->max_diff, relative, check->kl, check->positions,
               check->greedy_same, check->beyond_rounding);
}

static void compare_text(const pesc_logit_check *check, double relative)
{
    printf("identity: max |diff| %.3g over %" PRIu64 " logits, %.2g of the largest; KL %.2g, "
           "greedy %" PRIu64 " of %" PRIu64,
           check->max_diff, check->logits, relative, check->kl, check->greedy_same,
           check->positions);
    if (check->beyond_rounding)
        printf("; %" PRIu64 " positions differ by more than rounding (a mixture may choose another "
               "expert near a tie)\n",
               check->beyond_rounding);
    else
        printf(" (rounding)\n");
}

void made_compare(const options *o, const made *m)
{
    const pesc_logit_check *check = m->check;
    double relative = check->max_logit > 0 ? check->max_diff / check->max_logit : check->max_diff;
    if (check->logits == 0)
        return;
    if (o->json)
        compare_json(check, relative);
    else if (m->exact) /* with a coarser dtype both are rounded to it: the writing is compared */
        printf("identity: %" PRIu64 " of %" PRIu64 " logits differ%s%s\n", check->differ,
               check->logits, m->dtype ? " from the source read as " : "",
               m->dtype ? m->dtype : "");
    else
        compare_text(check, relative);
}

static void describe(const options *o, const pesc_model_info *i)
{
    out_number total, activated, bytes;
    printf("%s: %s", o->output, i->family);
    if (i->experts)
        printf(", %" PRId64 " experts, top %" PRId64, i->experts, i->top_k);
    if (i->adapter_dim)
        printf(", adapters of %" PRId64 ", scale %g", i->adapter_dim, i->adapter_scale);
    if (i->ffn_experts)
        printf(", beside %" PRId64 " experts, top %" PRId64, i->ffn_experts, i->ffn_top_k);
    if (i->experts && i->sparse_layers < i->layers)
        printf(", in %" PRId64 " of %" PRId64 " layers", i->sparse_layers, i->layers);
    printf(", %s parameters", out_count(total, i->params_total));
    if (i->experts)
        printf(" (%s activated)", out_count(activated, i->params_activated));
    printf(", %s\n", out_bytes(bytes, i->bytes));
}

pesc_status made_report(const options *o, const made *m)
{
    pesc_model_info info = PESC_INIT(pesc_model_info);
    TRY(pesc_info(o->output, NULL, NULL, &info));
    if (!o->json) {
        describe(o, &info);
        made_compare(o, m);
        return PESC_OK;
    }
    out_begin(NULL, '{');
    out_fields("path=%s family=%s experts=%ld top_k=%ld params=%lu activated=%lu bytes=%lu",
               o->output, info.family, info.experts, info.top_k, info.params_total,
               info.params_activated, info.bytes);
    made_compare(o, m);
    out_end();
    return PESC_OK;
}
