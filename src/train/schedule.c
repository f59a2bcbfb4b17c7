#include "train/schedule.h"

#include <math.h>
#include <string.h>

bool schedule_find(const char *name, schedule_kind *out)
{
    static const char *const names[] = { "constant", "cosine", "linear" };
    for (int i = 0; i < 3; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (schedule_kind)i;
            return true;
        }
    return false;
}

double schedule_lr(schedule_kind kind, double lr, int64_t step, int64_t warmup, int64_t total)
{
    if (step < warmup)
        return lr * (double)(step + 1) / (double)warmup;
    int64_t span = total > warmup ? total - warmup : 1, left = total > step ? total - step : 0;
    switch (kind) {
    case SCHEDULE_COSINE:
        return lr * 0.5 * (1 + cos(3.14159265358979323846 * (1 - (double)left / (double)span)));
    case SCHEDULE_LINEAR:
        return lr * (double)left / (double)span;
    default:
        return lr;
    }
}
