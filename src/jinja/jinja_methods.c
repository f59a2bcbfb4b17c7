/* Methods of strings about case and kinds of characters, and those of dictionaries and lists. */
#include "jinja/jinja_builtin.h"
#include "jinja/jinja_python.h"

#include "base/utf8.h"

#include <utf8proc.h>

#define METHOD(name) static jvalue name(jctx *c, jvalue self, const jvalue *a, const jargs *all)
#define UNUSED (void)a, (void)all

METHOD(str_upper)
{
    UNUSED;
    return jpython_cased(c, self.str, JCASE_UPPER);
}

METHOD(str_lower)
{
    UNUSED;
    return jpython_cased(c, self.str, JCASE_LOWER);
}

METHOD(str_title)
{
    UNUSED;
    return jpython_cased(c, self.str, JCASE_TITLE);
}

METHOD(str_capitalize)
{
    UNUSED;
    return jpython_capitalized(c, self.str);
}

/* ---- kinds of characters ---- */

static utf8proc_category_t category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

static bool is_upper(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LU;
}

static bool is_lower(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LL;
}

static bool is_alpha(uint32_t cp)
{
    utf8proc_category_t k = category(cp);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

static bool is_decimal(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_ND;
}

static bool is_digit(uint32_t cp) /* with superscripts */
{
    return is_decimal(cp) || cp == 0xb2 || cp == 0xb3 || cp == 0xb9 ||
           (cp >= 0x2070 && cp <= 0x2089 && cp != 0x2071);
}

static bool is_numeric(uint32_t cp)
{
    utf8proc_category_t k = category(cp);
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

static bool is_alnum(uint32_t cp)
{
    return is_alpha(cp) || is_numeric(cp);
}

/* Counts characters: all of them, those of a kind, and those of a kind that must not be there. */
typedef bool (*char_test)(uint32_t cp);
static jvalue ask(jctx *c, const jstr *s, char_test yes, char_test no)
{
    size_t found = 0, other = 0;
    if (!jctx_step(c, s->n / 8))
        return jbool(false);
    for (size_t i = 0; i < s->n;) {
        uint32_t cp = 0;
        int k = utf8_decode(s->p + i, s->n - i, &cp);
        bool is = yes(cp);
        found += is;
        other += no ? no(cp) : !is;
        i += k > 0 ? (size_t)k : 1;
    }
    return jbool(found > 0 && other == 0);
}

#define ASKING(name, yes, no)                                                                      \
    METHOD(name)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return ask(c, self.str, yes, no);                                                          \
    }

ASKING(str_isupper, is_upper, is_lower)
ASKING(str_islower, is_lower, is_upper)
ASKING(str_isalpha, is_alpha, NULL)
ASKING(str_isdecimal, is_decimal, NULL)
ASKING(str_isdigit, is_digit, NULL)
ASKING(str_isnumeric, is_numeric, NULL)
ASKING(str_isalnum, is_alnum, NULL)
ASKING(str_isspace, pytext_is_space, NULL)

const jbuiltin jinja_methods_case[] = {
    { "upper", str_upper, "", 0 },
    { "lower", str_lower, "", 0 },
    { "title", str_title, "", 0 },
    { "capitalize", str_capitalize, "", 0 },
    { "isupper", str_isupper, "", 0 },
    { "islower", str_islower, "", 0 },
    { "isalpha", str_isalpha, "", 0 },
    { "isdecimal", str_isdecimal, "", 0 },
    { "isdigit", str_isdigit, "", 0 },
    { "isnumeric", str_isnumeric, "", 0 },
    { "isalnum", str_isalnum, "", 0 },
    { "isspace", str_isspace, "", 0 },
    { 0 },
};

/* ---- dictionaries ---- */

typedef enum part { PART_KEYS, PART_VALUES, PART_ITEMS } part;

static jvalue view(jctx *c, const jdict *d, part which)
{
    static const char *const labels[] = { "dict_keys", "dict_values", "dict_items" };
    jvalue out = jvalue_seq(c, J_VIEW, d->n);
    for (size_t i = 0; i < d->n && jctx_step(c, 1); i++) {
        const jpair *p = &d->v[i];
        jseq_add(c, out.seq,
                 which == PART_KEYS     ? p->key
                 : which == PART_VALUES ? p->value
                                        : jvalue_tuple2(c, p->key, p->value));
    }
    if (!jctx_failed(c))
        out.seq->label = labels[which];
    return out;
}

METHOD(dict_keys)
{
    UNUSED;
    return view(c, self.dict, PART_KEYS);
}

METHOD(dict_values)
{
    UNUSED;
    return view(c, self.dict, PART_VALUES);
}

METHOD(dict_items)
{
    UNUSED;
    return view(c, self.dict, PART_ITEMS);
}

METHOD(dict_get)
{
    (void)all;
    const jvalue *v = jdict_get(c, self.dict, a[0]);
    return v ? *v : a[1].kind == J_MISSING ? jnone() : a[1];
}

/* copy() of a dictionary or list: values do not change, so it is the same. */
METHOD(same)
{
    UNUSED, (void)c;
    return self;
}

const jbuiltin jinja_methods_dict[] = {
    { "keys", dict_keys, "", 0 },   { "values", dict_values, "", 0 },
    { "items", dict_items, "", 0 }, { "get", dict_get, "key default", 1 },
    { "copy", same, "", 0 },        { 0 },
};

/* ---- lists and tuples ---- */

METHOD(list_index)
{
    (void)all;
    for (size_t i = 0; i < self.seq->n && !jctx_failed(c); i++)
        if (jvalue_equal(c, self.seq->v[i], a[0]))
            return jint((int64_t)i);
    return jctx_fail(c, "index(): the value is not in the list");
}

METHOD(list_count)
{
    (void)all;
    int64_t n = 0;
    for (size_t i = 0; i < self.seq->n && !jctx_failed(c); i++)
        n += jvalue_equal(c, self.seq->v[i], a[0]);
    return jint(n);
}

const jbuiltin jinja_methods_list[] = {
    { "index", list_index, "value", 1 },
    { "count", list_count, "value", 1 },
    { "copy", same, "", 0 },
    { 0 },
};
