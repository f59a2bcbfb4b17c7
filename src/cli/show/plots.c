#include "cli/show/plots.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static pesc_status make_dir(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST
               ? PESC_OK
               : out_fail(PESC_DISK, "%s: cannot be made: %s", path, strerror(errno));
}

pesc_status plots_open(plot_files *p, const char *dir, const char *name)
{
    static const char *const endings[PLOT_FILES] = { "svg", "png" };
    size_t cap = strlen(dir) + strlen(name) + 16;
    *p = (plot_files){ 0 };
    for (int i = 0; i < PLOT_FILES; i++) {
        p->path[i] = malloc(cap);
        if (!p->path[i])
            return out_nomem("the names of the plots");
    }
    snprintf(p->path[0], cap, "%s/plots", dir);
    TRY(make_dir(dir));
    TRY(make_dir(p->path[0]));
    for (int i = 0; i < PLOT_FILES; i++)
        snprintf(p->path[i], cap, "%s/plots/%s.%s", dir, name, endings[i]);
    return PESC_OK;
}

void plots_free(plot_files *p)
{
    for (int i = 0; i < PLOT_FILES; i++)
        free(p->path[i]);
    *p = (plot_files){ 0 };
}

void plots_json(const plot_files *p)
{
    for (int i = 0; i < PLOT_FILES; i++)
        out_text(NULL, p->path[i]);
}

void plots_print(const plot_files *p)
{
    for (int i = 0; i < PLOT_FILES; i++)
        puts(p->path[i]);
}
