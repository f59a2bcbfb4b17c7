#include "eval/metric.h"

#include <math.h>
#include <string.h>

metric_score metric_mean(const double *values, size_t n)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += values[i];
    double mean = n > 0 ? sum / (double)n : NAN;
    for (size_t i = 0; i < n; i++)
        squares += (values[i] - mean) * (values[i] - mean);
    double deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : NAN;
    return (metric_score){ mean, deviation / sqrt((double)n), n };
}

/* A task of one document has no standard error and adds nothing to the pooled variance. */
metric_score metric_pool(const metric_score *tasks, size_t n)
{
    double sum = 0, variance = 0, documents = 0;
    for (size_t i = 0; i < n; i++) {
        double size = (double)tasks[i].n;
        sum += tasks[i].n ? tasks[i].mean * size : 0;
        documents += size;
        if (tasks[i].n > 1)
            variance += (size - 1) * tasks[i].error * tasks[i].error * size;
    }
    double spread = documents > (double)n ? variance / (documents - (double)n) : NAN;
    return (metric_score){ documents > 0 ? sum / documents : NAN, sqrt(spread / documents),
                           (uint64_t)documents };
}

metric_score metric_difference(const double *a, const double *b, size_t n)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] - b[i];
    double mean = n > 0 ? sum / (double)n : NAN;
    for (size_t i = 0; i < n; i++)
        squares += (a[i] - b[i] - mean) * (a[i] - b[i] - mean);
    double deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : NAN;
    return (metric_score){ mean, deviation / sqrt((double)n), n };
}

size_t metric_argmax(const double *values, const double *lengths, size_t n)
{
    size_t best = 0;
    double most = lengths ? values[0] / lengths[0] : values[0];
    for (size_t i = 1; i < n && !isnan(most); i++) {
        double value = lengths ? values[i] / lengths[i] : values[i];
        if (value > most || isnan(value)) {
            most = value;
            best = i;
        }
    }
    return best;
}

double metric_full(const char *name)
{
    return strcmp(name, "chrf") == 0 ? 100 : strcmp(name, "judge") == 0 ? 10 : 1;
}
