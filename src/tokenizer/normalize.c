#include "tokenizer/normalize.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/chain.h"
#include "tokenizer/pattern.h"
#include "base/unicode.h"

#include <string.h>
#include <utf8proc.h>

typedef struct step step;
typedef struct kind {
    const char *type;
    pesc_status (*read)(step *s, const json_t *v, const char *where); /* NULL: no options */
    pesc_status (*run)(const step *s, normalize_scratch *ns, const char *text, size_t n, str *out);
    normal_form form;
} kind;

struct step {
    const kind *kind;
    pattern pattern; /* Replace */
    char *content;   /* Replace, Prepend */
    size_t content_n;
    bool left, right; /* Strip */
    charsmap *map;    /* Precompiled */
};

struct normalizer {
    step step[CHAIN_MAX];
    size_t n;
};

static pesc_status open_prepend(step *s, const json_t *v, const char *where)
{
    return pattern_get_text(v, "prepend", where, &s->content, &s->content_n);
}

static pesc_status open_replace(step *s, const json_t *v, const char *where)
{
    TRY(pattern_open_json(&s->pattern, v, "pattern", where));
    return pattern_get_text(v, "content", where, &s->content, &s->content_n);
}

static pesc_status open_strip(step *s, const json_t *v, const char *where)
{
    json_where w = { v, where };
    TRY(json_get_bool(w, "strip_left", true, &s->left));
    return json_get_bool(w, "strip_right", true, &s->right);
}

static pesc_status open_precompiled(step *s, const json_t *v, const char *where)
{
    const json_t *map = json_object_get(v, "precompiled_charsmap");
    if (!map || json_is_null(map))
        return PESC_OK;
    if (!json_is_string(map))
        return fail(PESC_FORMAT, "%s: precompiled_charsmap: found %s, expected base64", where,
                    json_kind(map));
    return charsmap_open_base64(&s->map, json_string_value(map), json_string_length(map), where);
}

static pesc_status run_prepend(const step *s, normalize_scratch *ns, const char *text, size_t n,
                               str *out)
{
    (void)ns;
    if (n > 0)
        str_add(out, s->content, s->content_n);
    str_add(out, text, n);
    return PESC_OK;
}

static pesc_status run_replace(const step *s, normalize_scratch *ns, const char *text, size_t n,
                               str *out)
{
    regex_walk w = { .scratch = ns->rs, .work = ns->work, .text = text, .n = n };
    size_t done = 0;
    bool found;
    while (str_ok(out)) {
        TRY(pattern_next(&s->pattern, &w, &found));
        if (!found)
            break;
        str_add(out, text + done, w.start - done);
        /* Hugging Face takes what replaces several characters for the last of them */
        int first = s->content_n ? utf8_decode(text + w.start, n - w.start, NULL) : 0;
        ns->cut |= out->n == 0 && w.end - w.start > (size_t)first;
        str_add(out, s->content, s->content_n);
        done = w.end;
    }
    str_add(out, text + done, n - done);
    return PESC_OK;
}

static pesc_status run_form(const step *s, normalize_scratch *ns, const char *text, size_t n,
                            str *out)
{
    bool done = normalform_apply(s->kind->form, text, n, &ns->forms, out);
    return done || !str_ok(out) ? PESC_OK : fail_nomem("normalising a text", n);
}

static pesc_status run_lowercase(const step *s, normalize_scratch *ns, const char *text, size_t n,
                                 str *out)
{
    (void)s, (void)ns;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        char bytes[4];
        i += (size_t)utf8_decode(text + i, n - i, &cp);
        uint32_t low = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
        str_add(out, bytes, (size_t)utf8_encode(low, bytes));
        if (cp == 0x130) /* the one character whose lower case is two: i and a dot above */
            str_puts(out, "\xCC\x87");
    }
    return PESC_OK;
}

static pesc_status run_strip(const step *s, normalize_scratch *ns, const char *text, size_t n,
                             str *out)
{
    uint32_t cp = 0;
    size_t from = 0, len;
    while (s->left && from < n && (len = (size_t)utf8_decode(text + from, n - from, &cp)) > 0 &&
           unicode_is_space(cp))
        from += len;
    ns->cut |= from > 0;
    while (s->right && n > from && unicode_is_space(unicode_last(text, n, &len)))
        n -= len;
    str_add(out, text + from, n - from);
    return PESC_OK;
}

static pesc_status run_strip_accents(const step *s, normalize_scratch *ns, const char *text,
                                     size_t n, str *out)
{
    (void)s;
    size_t len;
    for (size_t i = 0; i < n; i += len) {
        uint32_t cp = 0;
        len = (size_t)utf8_decode(text + i, n - i, &cp);
        if (!unicode_is_mark(cp))
            str_add(out, text + i, len);
        ns->cut |= out->n == 0;
    }
    return PESC_OK;
}

static pesc_status run_precompiled(const step *s, normalize_scratch *ns, const char *text, size_t n,
                                   str *out)
{
    (void)ns;
    charsmap_apply(s->map, text, n, out);
    return PESC_OK;
}

static const kind kinds[] = {
    { "Prepend", open_prepend, run_prepend, 0 },
    { "Replace", open_replace, run_replace, 0 },
    { "NFC", NULL, run_form, NORMALFORM_NFC },
    { "NFD", NULL, run_form, NORMALFORM_NFD },
    { "NFKC", NULL, run_form, NORMALFORM_NFKC },
    { "NFKD", NULL, run_form, NORMALFORM_NFKD },
    { "Lowercase", NULL, run_lowercase, 0 },
    { "Strip", open_strip, run_strip, 0 },
    { "StripAccents", NULL, run_strip_accents, 0 },
    { "Precompiled", open_precompiled, run_precompiled, 0 },
};

static pesc_status open_step(void *component, const json_t *v, const char *type, const char *where)
{
    static const chain_table table = { "normalizer", kinds, sizeof kinds / sizeof *kinds,
                                       sizeof *kinds };
    normalizer *z = component;
    const void *row;
    TRY(chain_find(&row, &table, type, where));
    step *s = &z->step[z->n++];
    s->kind = row;
    return s->kind->read ? s->kind->read(s, v, where) : PESC_OK;
}

static void close_any(void *component)
{
    normalizer_close(component);
}

pesc_status normalizer_open(normalizer **out, const json_t *v, const char *file)
{
    static const chain c = { "normalizer", "normalizers", open_step, sizeof(normalizer),
                             close_any };
    return chain_open((void **)out, &c, v, file);
}

void normalizer_close(normalizer *z)
{
    if (!z)
        return;
    for (size_t i = 0; i < z->n; i++) {
        pattern_free(&z->step[i].pattern);
        mem_free(z->step[i].content);
        charsmap_close(z->step[i].map);
    }
    mem_free(z);
}

pesc_status normalizer_run(const normalizer *z, normalize_scratch *s, const char *text, size_t n,
                           const char **result, size_t *result_n)
{
    str *to = &s->a, *other = &s->b;
    s->cut = false;
    for (size_t i = 0; z && i < z->n; i++) {
        budget_open_text(s->work, to);
        TRY(z->step[i].kind->run(&z->step[i], s, text, n, to));
        TRY(budget_take_text(s->work, to, "the normalizer"));
        text = to->n ? to->p : "";
        n = to->n;
        str *swap = to;
        to = other;
        other = swap;
    }
    *result = text;
    *result_n = n;
    return PESC_OK;
}

void normalize_scratch_free(normalize_scratch *s)
{
    str_free(&s->a);
    str_free(&s->b);
    mem_free(s->forms.cp);
    *s = (normalize_scratch){ .rs = s->rs, .work = s->work };
}
