/* cmd_doctor: what this build and this machine have. */
#include "cli/command.h"

#include <stdio.h>
#include <stdlib.h>

static void print_kernel(const pesc_kernel_row *r)
{
    printf("%-6s %-14s %-13s %-5s %-8s %-35s %-11s %s\n", r->device, r->op, r->name, r->rows,
           r->layouts, r->types, r->hardware, r->detail);
}

static void print_kernel_json(const pesc_kernel_row *r)
{
    out_object(NULL, "device=%s op=%s name=%s rows=%s layouts=%s types=%s hardware=%s detail=%s",
               r->device, r->op, r->name, r->rows, r->layouts, r->types, r->hardware, r->detail);
}

static pesc_status list_kernels(bool as_json)
{
    static const pesc_kernel_row heading = { "device",  "op",    "kernel",   "rows",
                                             "layouts", "types", "hardware", "method" };
    size_t n = pesc_kernels(NULL, 0);
    pesc_kernel_row *rows = calloc(n ? n : 1, sizeof *rows);
    if (!rows)
        return out_nomem("the list");
    pesc_kernels(rows, n);
    if (as_json)
        out_begin(NULL, '[');
    else
        print_kernel(&heading);
    for (size_t i = 0; i < n; i++)
        (as_json ? print_kernel_json : print_kernel)(&rows[i]);
    if (as_json)
        out_end();
    free(rows);
    return PESC_OK;
}

pesc_status cmd_doctor(const options *o)
{
    if (o->kernels)
        return list_kernels(o->json);
    size_t own = pesc_doctor(NULL, 0), n = own + pesc_comm_doctor(NULL, 0);
    pesc_doctor_row *rows = calloc(n ? n : 1, sizeof *rows);
    if (!rows)
        return out_nomem("the report");
    pesc_doctor(rows, own);
    pesc_comm_doctor(rows + own, n - own);
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
        out_object(NULL, "name=%s state=%s detail=%s", rows[i].name, rows[i].state, rows[i].detail);
    }
    if (o->json) {
        out_end();
        out_end();
    }
    free(rows);
    return PESC_OK;
}
