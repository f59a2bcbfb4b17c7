/* Grammars without recursion: a regular expression, and a list of texts. */
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/chardfa.h"
#include "grammar/frontends.h"
#include "grammar/regexparse.h"

#include <string.h>

static const char *name_of(const void *ud, uint32_t rule)
{
    (void)ud;
    (void)rule;
    return "a part of it";
}

pesc_status regex_write(rules *r, const char *text, size_t n, uint32_t *root)
{
    expr_pool pool = { 0 };
    spell_rules sets = { 0 };
    char_condition c = { .pool = &pool };
    chardfa d = { 0 };
    pesc_status st = regex_parse(&pool, text, n, &c.root);
    if (st == PESC_OK)
        st = chardfa_build(&d, &c, 1, (char_length){ 0, -1 });
    if (st == PESC_OK) {
        *root = rules_add(r);
        if (r->status == PESC_OK)
            chardfa_write(&d, r, &sets, r->rules[*root], SPELL_UTF8);
        st = rules_finish(r, *root, name_of, NULL);
    }
    chardfa_free(&d);
    expr_pool_free(&pool);
    spell_rules_free(&sets);
    return st;
}

pesc_status choices_write(rules *r, const char *const *texts, size_t n, uint32_t *root)
{
    *root = rules_add(r);
    for (size_t i = 0; i < n && r->status == PESC_OK; i++) {
        if (!utf8_valid(texts[i], strlen(texts[i])))
            return fail(PESC_FORMAT, "choice %zu is not UTF-8", i + 1);
        rules_text(r, r->rules[*root].start, r->rules[*root].end, texts[i], strlen(texts[i]));
    }
    return rules_finish(r, *root, name_of, NULL);
}
