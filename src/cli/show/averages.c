#include "cli/show/averages.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct task_metric {
    const char *task, *metric, *filter; /* metric NULL: the first */
} groups[][6] = {
    { { "humaneval", NULL, NULL }, { "mbpp", NULL, NULL } },
    { { "gsm8k", "exact_match", "flexible-extract" }, { "minerva_math", NULL, NULL } },
    { { "piqa", NULL, NULL },
      { "hellaswag", "acc_norm", NULL },
      { "winogrande", NULL, NULL },
      { "arc_easy", NULL, NULL },
      { "arc_challenge", "acc_norm", NULL } },
    { { "nq_open", NULL, NULL }, { "triviaqa", NULL, NULL } },
    { { "mmlu", NULL, NULL } },
};
enum { N_GROUPS = sizeof groups / sizeof *groups };

/* The last is the mean of the others. */
static const char *const names_of[N_GROUPS + 1] = { "code",        "maths",
                                                    "commonsense", "world knowledge",
                                                    "mmlu",        "average" };

/* In percent of a perfect score. */
void averages_value(double mean, double error, const char *sign, double full)
{
    char text[48] = "-";
    mean /= full;
    error /= full;
    if (isfinite(mean) && isfinite(error))
        snprintf(text, sizeof text, sign[0] ? "%+7.2f \u00B1 %.2f" : "%7.2f \u00B1 %.2f",
                 100 * mean, 100 * error);
    else if (isfinite(mean))
        snprintf(text, sizeof text, "%7.2f", 100 * mean);
    printf("  %-16s", text);
}

/* Whether a row has the name, with or without "?" after it. */
bool averages_named(const pesc_benchmark_score *s, const char *task)
{
    size_t n = strlen(task);
    return strncmp(s->task, task, n) == 0 && (!s->task[n] || strcmp(s->task + n, "?") == 0);
}

/* NAN: it was not evaluated. */
static double score_of(const pesc_benchmark_report *r, const struct task_metric *t)
{
    for (size_t i = 0; i < r->n_scores; i++) {
        const pesc_benchmark_score *s = &r->scores[i];
        if (averages_named(s, t->task) && (!t->metric || strcmp(s->metric, t->metric) == 0) &&
            (!t->filter || strcmp(s->filter, t->filter) == 0))
            return s->mean;
    }
    return NAN;
}

static double average_of(const pesc_benchmark_report *r, size_t which)
{
    double sum = 0;
    size_t n = 0;
    if (which == N_GROUPS) {
        for (size_t g = 0; g < N_GROUPS; g++)
            sum += average_of(r, g) / N_GROUPS;
        return sum;
    }
    for (; n < 6 && groups[which][n].task; n++)
        sum += score_of(r, &groups[which][n]);
    return sum / (double)n;
}

void averages_print(const pesc_benchmark_report *models, size_t n)
{
    bool any = false;
    for (size_t g = 0; g < N_GROUPS; g++)
        any = any || isfinite(average_of(&models[0], g));
    if (!any)
        return;
    puts("\naverages of the groups of the PESC paper, in percent (HellaSwag and ARC challenge by "
         "acc_norm, GSM8K by its flexible answer)");
    for (size_t g = 0; g <= N_GROUPS; g++) {
        if (!isfinite(average_of(&models[0], g)))
            continue;
        printf("%-70s", names_of[g]);
        for (size_t k = 0; k < n; k++)
            averages_value(average_of(&models[k], g), NAN, "", 1);
        putchar('\n');
    }
}

void averages_json(const pesc_benchmark_report *r)
{
    const char *end = strrchr(r->json, '}');
    bool any = false;
    for (size_t g = 0; g < N_GROUPS; g++)
        any = any || isfinite(average_of(r, g));
    if (!any || !end) {
        fputs(r->json, stdout);
        return;
    }
    while (end > r->json && (end[-1] == '\n' || end[-1] == ' '))
        end--;
    printf("%.*s,\n  \"paper_averages\": {", (int)(end - r->json), r->json);
    const char *comma = "";
    for (size_t g = 0; g <= N_GROUPS; g++)
        if (isfinite(average_of(r, g))) {
            printf("%s\"%s\": %.10g", comma, names_of[g], 100 * average_of(r, g));
            comma = ", ";
        }
    printf("}\n%s", strrchr(r->json, '}'));
}

pesc_status averages_draw(const char *dir, const pesc_benchmark_report *models,
                          const char *const *names, size_t n)
{
    static const char *const endings[] = { "svg", "png" };
    const char *shown[N_GROUPS + 1];
    double values[(N_GROUPS + 1) * 64];
    size_t list[N_GROUPS + 1], n_shown = 0;
    n = n < 64 ? n : 64;
    for (size_t g = 0; g <= N_GROUPS; g++) {
        bool whole = true;
        for (size_t k = 0; k < n; k++)
            whole = whole && isfinite(average_of(&models[k], g));
        if (whole)
            list[n_shown++] = g;
    }
    for (size_t i = 0; i < n_shown; i++) {
        shown[i] = names_of[list[i]];
        for (size_t k = 0; k < n; k++)
            values[k * n_shown + i] = 100 * average_of(&models[k], list[i]);
    }
    for (int i = 0; n_shown && i < 2; i++) {
        char path[4096];
        int length = snprintf(path, sizeof path, "%s/groups.%s", dir, endings[i]);
        if (length < 0 || (size_t)length >= sizeof path)
            return out_fail(PESC_USAGE, "eval: --output: %s: is too long", dir);
        TRY(pesc_plot_bars(path, &(pesc_bars){ .size = sizeof(pesc_bars),
                                               .title = "Groups of benchmarks, in percent",
                                               .note = "the groups of the PESC paper's Table 3",
                                               .groups = shown,
                                               .n_groups = n_shown,
                                               .series = names,
                                               .n_series = n,
                                               .values = values }));
    }
    return PESC_OK;
}
