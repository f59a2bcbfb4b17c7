/* record_format: which row of record.c a file's records fit. */
#include "data/record_format.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

const record_format *record_format_find(const char *name)
{
    const record_format *f = NULL;
    for (size_t i = 0; (f = record_row(i)) && strcmp(f->name, name) != 0;)
        i++;
    return f;
}

const char *record_format_name(const record_format *f)
{
    return f->name;
}

record_kind record_format_kind(const record_format *f)
{
    return f->kind;
}

record_class record_format_class(const record_format *f)
{
    return f->of;
}

static bool fits(const record_format *f, const json_t *v)
{
    if (f->of == RECORD_PAIR)
        return pair_fits(v, f->form);
    if (f->of == RECORD_LABELLED)
        return pair_labelled_fits(v, f->form);
    return json_has(v, f->needs[0]) && (!f->needs[1] || json_has(v, f->needs[1]));
}

static const record_format *first_that_fits(const json_t *v, record_class of)
{
    const record_format *f = NULL;
    for (size_t i = 0; (f = record_row(i)) && !(f->of == of && fits(f, v));)
        i++;
    return f ? record_row_of(f, v) : NULL;
}

/* What a record that fits no row of its class is to be called, and what it may be instead. */
static pesc_status no_format(const json_t *v, record_class wanted)
{
    if (wanted == RECORD_PAIR || wanted == RECORD_LABELLED) {
        str found = { 0 };
        record_list_fields(&found, v);
        bool pair = wanted == RECORD_PAIR;
        pesc_status s = fail(
            PESC_FORMAT, "fits no format of %s: found the fields %s; expected %s",
            pair ? "pairs" : "labelled answers", found.p ? found.p : "none",
            pair ? "prompt, chosen and rejected (texts or lists of turns), chosen and rejected as "
                   "whole conversations, or question, response_j and response_k"
                 : "prompt, response (or completion) and label, or messages and label");
        str_free(&found);
        return s;
    }
    if (first_that_fits(v, RECORD_PAIR))
        return fail(PESC_FORMAT, "holds a pair of answers, not an instruction with its answer; "
                                 "train --objective dpo (or ipo, orpo, simpo) learns from pairs");
    str found = { 0 }, known = { 0 };
    record_list_fields(&found, v);
    const record_format *f;
    for (size_t i = 0; (f = record_row(i)) && f->of == RECORD_INSTRUCTION; i++)
        str_printf(&known, "%s%s (%s%s%s)", i ? ", " : "", f->name, f->needs[0],
                   f->needs[1] ? ", " : "", f->needs[1] ? f->needs[1] : "");
    pesc_status s = fail(PESC_FORMAT, "fits no data format: found the fields %s; known are %s",
                         found.p ? found.p : "none", known.p ? known.p : "");
    str_free(&found);
    str_free(&known);
    return s;
}

const record_format *record_format_detect(const json_t *v, record_class wanted)
{
    bool any = wanted == RECORD_ANY;
    const record_format *f = first_that_fits(v, any ? RECORD_PAIR : wanted);
    if (!f && any && json_is_boolean(json_object_get(v, "label"))) /* else it may be anything */
        f = first_that_fits(v, RECORD_LABELLED);
    if (!f && any)
        f = first_that_fits(v, RECORD_INSTRUCTION);
    if (!f)
        (void)no_format(v, wanted);
    return f;
}

/* given: the row that was asked for, or NULL. */
static pesc_status detect(source *src, uint64_t first, const record_format *given,
                          record_class wanted, const record_format **out)
{
    json_t *v;
    char why[1024];
    TRY(source_record(src, first, &v));
    *out = given ? record_row_of(given, v) : record_format_detect(v, wanted);
    json_decref(v);
    snprintf(why, sizeof why, "%s", pesc_last_error());
    return *out ? PESC_OK : fail(PESC_FORMAT, "%s: %s", source_where(src, first), why);
}

static pesc_status unknown_format(const char *name)
{
    str known = { 0 };
    const record_format *f;
    for (size_t i = 0; (f = record_row(i)); i++)
        str_printf(&known, "%s%s", i ? ", " : "", f->name);
    pesc_status s = fail(PESC_USAGE,
                         "format: found \"%s\", expected one of %s; without it the format is found "
                         "by looking at the first record",
                         name, str_ok(&known) ? known.p : "");
    str_free(&known);
    return s;
}

pesc_status record_formats(source *src, const char *name, record_class wanted,
                           const record_format ***out)
{
    static const char *const classes[] = { "instructions", "pairs of answers", "labelled answers" };
    size_t n = source_files(src);
    const record_format *given = name ? record_format_find(name) : NULL;
    if (name && !given)
        return unknown_format(name);
    if (given && wanted != RECORD_ANY && given->of != wanted)
        return fail(PESC_USAGE, "format: found \"%s\", which is of %s; expected one of %s", name,
                    classes[given->of], classes[wanted]);
    const record_format **list = mem_zalloc(n, sizeof *list);
    if (!list)
        return fail_nomem("the data formats", n * sizeof *list);
    *out = list;
    for (size_t i = 0; i < n; i++) {
        list[i] = given;
        if (!given || record_row_varies(given))
            TRY(detect(src, source_file_first(src, i), given, wanted, &list[i]));
    }
    return PESC_OK;
}

pesc_status record_answers(pair_answers *out, const record_format *f, const json_t *v,
                           const record_format **as)
{
    TRY(f->of == RECORD_PAIR ? pair_read(out, v, f->form) : pair_labelled_read(out, v, f->form));
    *as = first_that_fits(out->record[0], RECORD_INSTRUCTION);
    return PESC_OK;
}
