/* cmd_doctor: what this build and this machine have. */
#include "cli/command.h"

#include <stdio.h>
#include <stdlib.h>

pesc_status cmd_doctor(const options *o)
{
    size_t n = pesc_doctor(NULL, 0);
    pesc_doctor_row *rows = calloc(n ? n : 1, sizeof *rows);
    if (!rows)
        return out_nomem("the report");
    pesc_doctor(rows, n);
    if (o->json) {
        out_begin(NULL, '{');
        out_text("version", PESC_VERSION);
        out_begin("checks", '[');
    }
    for (size_t i = 0; i < n; i++) {
        if (!o->json) {
            printf("%-8s %-14s %s\n", rows[i].state, rows[i].name, rows[i].detail);
            continue;
        }
        out_begin(NULL, '{');
        out_text("name", rows[i].name);
        out_text("state", rows[i].state);
        out_text("detail", rows[i].detail);
        out_end();
    }
    if (o->json) {
        out_end();
        out_end();
    }
    free(rows);
    return PESC_OK;
}
