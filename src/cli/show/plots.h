/* plots: the files of a command's picture, DIR/plots/NAME.svg and DIR/plots/NAME.png. */
#ifndef PESC_CLI_PLOTS_H
#define PESC_CLI_PLOTS_H

#include "cli/show/out.h"

enum { PLOT_FILES = 2 };

typedef struct plot_files {
    char *path[PLOT_FILES];
} plot_files;

/* Makes the directories. Closed by plots_free() even when it failed. */
pesc_status plots_open(plot_files *p, const char *dir, const char *name);
void plots_free(plot_files *p);

void plots_json(const plot_files *p);  /* as texts of an open array */
void plots_print(const plot_files *p); /* one line each */

#endif
