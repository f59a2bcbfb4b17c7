/* spnorm: what sentencepiece does to a text before it cuts it (spmodel_normalise in spmodel.h).
 *
 * The text is taken prefix by prefix: a user-defined piece verbatim, else the longest rule of the
 * charsmap, else one character. Spaces are handled on what comes out, so a rule that makes a space
 * counts as one. */
#include "tokenizer/spmodel.h"

#include "base/utf8.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/trie.h"

#include <string.h>

#define SPACE_MARK "\xe2\x96\x81" /* U+2581 */
#define REPLACEMENT "\xef\xbf\xbd"

/* How many bytes of text the next prefix takes, and what it becomes. */
static size_t next_prefix(const spmodel *m, const char *text, size_t n, const char **to,
                          size_t *to_n)
{
    size_t used = 0;
    if (m->user_defined && trie_longest(m->user_defined, text, n, &used) >= 0) {
        *to = text;
        *to_n = used;
        return used;
    }
    used = charsmap_match(m->map, text, n, to, to_n);
    if (used > 0)
        return used;
    *to = text;
    *to_n = (size_t)utf8_decode(text, n, NULL);
    if (*to_n > 0)
        return *to_n;
    *to = REPLACEMENT;
    *to_n = strlen(REPLACEMENT);
    return utf8_bad_length(text, n);
}

static void add_space(const spmodel *m, str *out)
{
    if (m->escape_whitespaces)
        str_add(out, SPACE_MARK, strlen(SPACE_MARK));
    else
        str_putc(out, ' ');
}

static void add_escaped(const spmodel *m, const char *text, size_t n, str *out)
{
    while (n > 0) {
        const char *space = memchr(text, ' ', n);
        size_t run = space ? (size_t)(space - text) : n;
        str_add(out, text, run);
        if (!space)
            return;
        add_space(m, out);
        text += run + 1;
        n -= run + 1;
    }
}

static void trim_end(const spmodel *m, str *out, size_t start)
{
    const char *space = m->escape_whitespaces ? SPACE_MARK : " ";
    size_t k = strlen(space);
    while (out->n - start >= k && memcmp(out->p + out->n - k, space, k) == 0)
        out->p[out->n -= k] = '\0';
}

void spmodel_normalise(const spmodel *m, const char *text, size_t n, bool dummy, str *out)
{
    const char *to = NULL;
    size_t at = 0, to_n = 0, start = out->n;
    bool collapse = m->remove_extra_whitespaces;
    while (collapse && at < n) {
        size_t used = next_prefix(m, text + at, n - at, &to, &to_n);
        if (to_n != 1 || to[0] != ' ')
            break;
        at += used;
    }
    if (at == n)
        return;
    dummy = dummy && m->add_dummy_prefix;
    if (dummy && !m->whitespace_suffix)
        add_space(m, out);
    bool after_space = collapse;
    while (at < n && str_ok(out)) {
        at += next_prefix(m, text + at, n - at, &to, &to_n);
        while (after_space && to_n > 0 && to[0] == ' ') {
            to++;
            to_n--;
        }
        if (to_n == 0)
            continue;
        add_escaped(m, to, to_n, out);
        after_space = collapse && to[to_n - 1] == ' ';
    }
    if (collapse && str_ok(out))
        trim_end(m, out, start);
    if (dummy && m->whitespace_suffix)
        add_space(m, out);
}
