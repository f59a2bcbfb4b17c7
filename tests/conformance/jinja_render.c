/* jinja_render: templates rendered by src/jinja, for tools/conformance/jinja.py.
 *
 * Reads JSON lines {"template", "variables", "trusted", "now": [year, month, day, hour, minute,
 * second]} and writes for each {"text", "generation": [[from, to], ...]} in bytes, or {"error",
 * "raised"} where raised says that the template called raise_exception(). */
#include "jinja/jinja.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tm read_time(const json_t *v)
{
    int at[6] = { 2024, 7, 26, 12, 0, 0 };
    for (size_t i = 0; i < 6 && i < json_array_size(v); i++)
        at[i] = (int)json_integer_value(json_array_get(v, i));
    struct tm tm = { .tm_year = at[0] - 1900,
                     .tm_mon = at[1] - 1,
                     .tm_mday = at[2],
                     .tm_hour = at[3],
                     .tm_min = at[4],
                     .tm_sec = at[5],
                     .tm_isdst = -1 };
    mktime(&tm); /* fills in the day of the week and of the year */
    return tm;
}

/* The spans of bytes inside {% generation %}. */
static json_t *spans(const jinja_text *t)
{
    json_t *list = json_array();
    for (size_t i = 0, end; i < t->n; i = end + 1) {
        for (end = i; end < t->n && (t->origin[end] & JINJA_GENERATED);)
            end++;
        if (end > i)
            json_array_append_new(list, json_pack("[II]", (json_int_t)i, (json_int_t)end));
    }
    return list;
}

static json_t *render(const json_t *line)
{
    const json_t *source = json_object_get(line, "template");
    struct tm now = read_time(json_object_get(line, "now"));
    jinja_input in = { .variables = json_object_get(line, "variables"),
                       .trusted = json_object_get(line, "trusted"),
                       .now = &now };
    jinja_template *t = NULL;
    jinja_text out = { 0 };
    json_t *answer;
    pesc_status s =
        jinja_compile(&t, json_string_value(source), json_string_length(source), "template");
    if (s == PESC_OK)
        s = jinja_render(t, &in, &out);
    if (s == PESC_OK)
        answer =
            json_pack("{so so}", "text", json_stringn(out.text, out.n), "generation", spans(&out));
    else
        answer = json_pack("{ss sb}", "error", pesc_last_error(), "raised", s == PESC_USAGE);
    jinja_text_free(&out);
    jinja_free(t);
    return answer;
}

int main(void)
{
    char *text = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&text, &cap, stdin)) > 0;) {
        json_t *line = json_loadb(text, (size_t)n, JSON_ALLOW_NUL, NULL);
        if (!line)
            return fprintf(stderr, "jinja_render: a line is no JSON\n"), 1;
        json_t *answer = render(line);
        json_dumpf(answer, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(answer);
        json_decref(line);
    }
    free(text);
    return 0;
}
