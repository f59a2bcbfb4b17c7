/* The pages at / and the files they consist of, which are part of the program: no file is read. */
#include "base/embed.h"
#include "serve/api/endpoints.h"

#include <string.h>

static const char *type_of(const char *name)
{
    static const struct {
        const char *suffix, *type;
    } rows[] = { { ".html", "text/html; charset=utf-8" },
                 { ".css", "text/css; charset=utf-8" },
                 { ".js", "text/javascript; charset=utf-8" } };
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(dot, rows[i].suffix) == 0)
            return rows[i].type;
    return "text/plain; charset=utf-8";
}

static bool reply(exchange *x, const char *name)
{
    for (size_t i = 0; i < embedded_page.n; i++)
        if (strcmp(name, embedded_page.v[i].name) == 0) {
            x->status = 200;
            x->type = type_of(name);
            x->page = true;
            str_add(&x->out, embedded_page.v[i].text, embedded_page.v[i].n);
            return true;
        }
    return api_refuse(&x->error, 404, "not_found", NULL, "there is no %.100s", x->path);
}

bool handle_page(exchange *x)
{
    return reply(x, x->argument[0] ? x->argument : "index.html");
}

bool handle_runs_page(exchange *x)
{
    return reply(x, "runs.html");
}
