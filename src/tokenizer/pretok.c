#include "tokenizer/pretok.h"

#include "base/mem.h"
#include "tokenizer/pattern.h"

#include <string.h>

typedef enum behavior { REMOVED, ISOLATED, WITH_PREVIOUS, WITH_NEXT, CONTIGUOUS } behavior;

static const struct {
    const char *name;
    behavior is;
} behaviors[] = {
    { "Removed", REMOVED },
    { "Isolated", ISOLATED },
    { "MergedWithPrevious", WITH_PREVIOUS },
    { "MergedWithNext", WITH_NEXT },
    { "Contiguous", CONTIGUOUS },
};

typedef enum prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS } prepend;

typedef struct step {
    char *mark; /* what goes in front; with `blanks` also written for each space */
    size_t mark_n;
    prepend prepend;
    bool blanks;
    bool cuts; /* there is a pattern */
    pattern pattern;
    behavior behavior;
    bool invert; /* the pattern finds what is between the matches */
} step;

struct pretok {
    step step[CHAIN_MAX];
    size_t n;
    bool bytes;
};

/* ---- reading ---- */

static pesc_status get_behavior(const json_t *v, behavior *out, const char *where)
{
    const char *name = json_string_value(json_object_get(v, "behavior"));
    for (size_t i = 0; name && i < sizeof behaviors / sizeof behaviors[0]; i++) {
        if (strcmp(name, behaviors[i].name) == 0) {
            *out = behaviors[i].is;
            return PESC_OK;
        }
    }
    return fail(PESC_UNSUPPORTED,
                "%s: behavior: found '%s', expected Removed, Isolated, MergedWithPrevious, "
                "MergedWithNext or Contiguous",
                where, name ? name : json_kind(json_object_get(v, "behavior")));
}

static pesc_status open_split(step *s, const json_t *v, const char *where)
{
    json_where w = { v, where };
    TRY(pattern_open_json(&s->pattern, v, "pattern", where));
    TRY(get_behavior(v, &s->behavior, where));
    s->cuts = true;
    return json_get_bool(w, "invert", false, &s->invert);
}

static pesc_status open_byte_level(step *s, const json_t *v, const char *where)
{
    json_where w = { v, where };
    bool prefix = true, regex_too = true;
    TRY(json_get_bool(w, "add_prefix_space", false, &prefix));
    TRY(json_get_bool(w, "use_regex", false, &regex_too));
    s->prepend = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    s->mark_n = 1;
    s->mark = mem_strdup(" ");
    if (!s->mark)
        return fail_nomem(where, 1);
    s->cuts = regex_too;
    s->behavior = ISOLATED;
    return regex_too ? pattern_open_regex(&s->pattern,
                                          "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|"
                                          " ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
                                          where)
                     : PESC_OK;
}

/* The old files have add_prefix_space where the new ones have prepend_scheme. */
static pesc_status get_scheme(step *s, const json_t *v, const char *where)
{
    static const char *const schemes[] = { "never", "first", "always" };
    json_where w = { v, where };
    bool prefix = true;
    const char *scheme = NULL;
    TRY(json_get_bool(w, "add_prefix_space", false, &prefix));
    TRY(json_get_str(w, "prepend_scheme", false, &scheme));
    s->prepend = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    for (int i = 0; scheme && i < 3; i++) {
        if (strcmp(scheme, schemes[i]) == 0) {
            s->prepend = (prepend)i;
            return PESC_OK;
        }
    }
    return scheme ? fail(PESC_UNSUPPORTED,
                         "%s: prepend_scheme: found '%s', expected always, first or never", where,
                         scheme)
                  : PESC_OK;
}

static pesc_status open_metaspace(step *s, const json_t *v, const char *where)
{
    json_where w = { v, where };
    const char *mark = NULL;
    TRY(json_get_str(w, "replacement", true, &mark));
    s->cuts = true;
    TRY(json_get_bool(w, "split", false, &s->cuts));
    TRY(get_scheme(s, v, where));
    s->blanks = true;
    s->behavior = WITH_NEXT;
    TRY(pattern_open_text(&s->pattern, mark, strlen(mark), where));
    s->mark_n = strlen(mark);
    s->mark = mem_strdup(mark);
    return s->mark ? PESC_OK : fail_nomem(where, s->mark_n);
}

static pesc_status open_digits(step *s, const json_t *v, const char *where)
{
    json_where w = { v, where };
    bool each = false;
    TRY(json_get_bool(w, "individual_digits", false, &each));
    s->behavior = each ? ISOLATED : CONTIGUOUS;
    s->cuts = true;
    /* Rust's tables are newer than those of the patterns (Unicode 17). */
    return pattern_open_regex(&s->pattern, "[\\p{N}\\x{11DE0}-\\x{11DE9}\\x{16FF4}-\\x{16FF6}]",
                              where);
}

static pesc_status open_whitespace(step *s, const json_t *v, const char *where)
{
    (void)v;
    s->behavior = REMOVED;
    s->cuts = s->invert = true;
    /* Words of Rust's regular expressions, which have joiners in them. */
    return pattern_open_regex(&s->pattern, "[\\w\\x{200C}\\x{200D}]+|[^\\w\\x{200C}\\x{200D}\\s]+",
                              where);
}

static pesc_status open_whitespace_split(step *s, const json_t *v, const char *where)
{
    (void)v;
    s->behavior = REMOVED;
    s->cuts = true;
    return pattern_open_regex(&s->pattern, "\\s", where);
}

/* What is punctuation in newer Unicode, but not in the tables (Unicode 8) that Hugging Face's
 * Punctuation has. */
#define NO_PUNCTUATION                                                                             \
    "\\x{61D}\\x{9FD}\\x{A76}\\x{C77}\\x{C84}\\x{1B4E}-\\x{1B4F}\\x{1B7D}-\\x{1B7F}"               \
    "\\x{2E43}-\\x{2E4F}\\x{2E52}-\\x{2E5D}\\x{10D6E}\\x{10EAD}\\x{10F55}-\\x{10F59}"              \
    "\\x{10F86}-\\x{10F89}\\x{113D4}-\\x{113D5}\\x{113D7}-\\x{113D8}"                              \
    "\\x{1144B}-\\x{1144F}\\x{1145A}-\\x{1145B}\\x{1145D}\\x{11660}-\\x{1166C}"                    \
    "\\x{116B9}\\x{1183B}\\x{11944}-\\x{11946}\\x{119E2}\\x{11A3F}-\\x{11A46}"                     \
    "\\x{11A9A}-\\x{11A9C}\\x{11A9E}-\\x{11AA2}\\x{11B00}-\\x{11B09}\\x{11BE1}"                    \
    "\\x{11C41}-\\x{11C45}\\x{11C70}-\\x{11C71}\\x{11EF7}-\\x{11EF8}"                              \
    "\\x{11F43}-\\x{11F4F}\\x{11FFF}\\x{12FF1}-\\x{12FF2}\\x{16D6D}-\\x{16D6F}"                    \
    "\\x{16E97}-\\x{16E9A}\\x{16FE2}\\x{1E5FF}\\x{1E95E}-\\x{1E95F}"

static pesc_status open_punctuation(step *s, const json_t *v, const char *where)
{
    s->behavior = ISOLATED;
    s->cuts = true;
    if (json_has(v, "behavior"))
        TRY(get_behavior(v, &s->behavior, where));
    return pattern_open_regex(
        &s->pattern, "(?![" NO_PUNCTUATION "])[\\p{P}$+<=>^`|~\\x{166D}\\x{111C9}]", where);
}

static pesc_status open_char_delimiter(step *s, const json_t *v, const char *where)
{
    json_where w = { v, where };
    const char *delimiter = NULL;
    TRY(json_get_str(w, "delimiter", true, &delimiter));
    s->behavior = REMOVED;
    s->cuts = true;
    return pattern_open_text(&s->pattern, delimiter, strlen(delimiter), where);
}

typedef struct kind {
    const char *type;
    pesc_status (*read)(step *s, const json_t *v, const char *where);
} kind;

static const kind kinds[] = {
    { "Split", open_split },
    { "ByteLevel", open_byte_level },
    { "Metaspace", open_metaspace },
    { "Digits", open_digits },
    { "Whitespace", open_whitespace },
    { "WhitespaceSplit", open_whitespace_split },
    { "Punctuation", open_punctuation },
    { "CharDelimiterSplit", open_char_delimiter },
};

static pesc_status open_step(void *component, const json_t *v, const char *type, const char *where)
{
    static const chain_table table = { "pre_tokenizer", kinds, sizeof kinds / sizeof *kinds,
                                       sizeof *kinds };
    pretok *p = component;
    const void *row;
    if (p->bytes)
        return fail(PESC_UNSUPPORTED, "%s: '%s' after ByteLevel is not supported", where, type);
    TRY(chain_find(&row, &table, type, where));
    p->bytes = strcmp(type, "ByteLevel") == 0;
    return ((const kind *)row)->read(&p->step[p->n++], v, where);
}

static void close_any(void *component)
{
    pretok_close(component);
}

pesc_status pretok_open(pretok **out, const json_t *v, const char *file)
{
    static const chain c = { "pre_tokenizer", "pretokenizers", open_step, sizeof(pretok),
                             close_any };
    return chain_open((void **)out, &c, v, file);
}

void pretok_close(pretok *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++) {
        pattern_free(&p->step[i].pattern);
        mem_free(p->step[i].mark);
    }
    mem_free(p);
}

bool pretok_is_bytes(const pretok *p)
{
    return p && p->bytes;
}

/* ---- running ---- */

typedef struct piece {
    size_t start, end;
    bool match, there;
} piece;

/* The state of one step over one text: what was found and may still grow. */
typedef struct cutter {
    pretok_run *r;
    size_t depth;
    const char *text;
    bool first;
    behavior behavior;
    piece held;
} cutter;

static pesc_status run_step(pretok_run *r, size_t depth, const char *text, size_t n, bool first);

static pesc_status hand_on(cutter *c, size_t start, size_t end)
{
    if (start == end)
        return PESC_OK;
    return run_step(c->r, c->depth + 1, c->text + start, end - start, c->first && start == 0);
}

static pesc_status release(cutter *c)
{
    bool there = c->held.there;
    c->held.there = false;
    return there ? hand_on(c, c->held.start, c->held.end) : PESC_OK;
}

/* Whether the next piece is glued to the one held, per behaviour. */
static bool glues(behavior b, bool held_match, bool match)
{
    switch (b) {
    case WITH_PREVIOUS:
        return !held_match && match;
    case WITH_NEXT:
        return held_match && !match;
    case CONTIGUOUS:
        return held_match == match;
    default:
        return false;
    }
}

static pesc_status take_piece(cutter *c, size_t start, size_t end, bool match)
{
    if (c->behavior == ISOLATED)
        return hand_on(c, start, end);
    if (c->behavior == REMOVED)
        return match ? PESC_OK : hand_on(c, start, end);
    if (c->held.there && glues(c->behavior, c->held.match, match)) {
        c->held.end = end;
        c->held.match = c->behavior == CONTIGUOUS ? match : true;
        return c->behavior == CONTIGUOUS ? PESC_OK : release(c);
    }
    TRY(release(c));
    c->held = (piece){ start, end, match, true };
    return PESC_OK;
}

static pesc_status cut(pretok_run *r, size_t depth, const char *text, size_t n, bool first)
{
    const step *s = &r->p->step[depth];
    cutter c = { .r = r, .depth = depth, .text = text, .first = first, .behavior = s->behavior };
    regex_walk w = { .scratch = r->rs, .work = r->work, .text = text, .n = n };
    size_t done = 0;
    bool found;
    for (;;) {
        TRY(pattern_next(&s->pattern, &w, &found));
        if (!found)
            break;
        if (w.start > done)
            TRY(take_piece(&c, done, w.start, s->invert));
        TRY(take_piece(&c, w.start, w.end, !s->invert));
        done = w.end;
    }
    if (done < n)
        TRY(take_piece(&c, done, n, s->invert));
    return release(&c);
}

/* The text as this step reads it: with its mark for blanks and in front. */
static pesc_status rewrite(pretok_run *r, size_t depth, const char **text, size_t *n, bool first)
{
    const step *s = &r->p->step[depth];
    str *b = &r->buffer[depth];
    bool starts = *n >= s->mark_n && memcmp(*text, s->mark, s->mark_n) == 0;
    bool blank = s->blanks && (*text)[0] == ' ';
    bool front = !starts && !blank &&
                 (s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && first));
    if (!front && !(s->blanks && memchr(*text, ' ', *n)))
        return PESC_OK;
    budget_open_text(r->work, b);
    if (front)
        str_add(b, s->mark, s->mark_n);
    const char *p = *text, *end = *text + *n;
    for (const char *space; s->blanks && str_ok(b) && (space = memchr(p, ' ', (size_t)(end - p)));
         p = space + 1) {
        str_add(b, p, (size_t)(space - p));
        str_add(b, s->mark, s->mark_n);
    }
    str_add(b, p, (size_t)(end - p));
    TRY(budget_take_text(r->work, b, "the pre_tokenizer"));
    *text = b->p;
    *n = b->n;
    return PESC_OK;
}

/* Recursion is as deep as the chain has steps, whatever the text. */
static pesc_status run_step(pretok_run *r, size_t depth, const char *text, size_t n, bool first)
{
    if (!r->p || depth == r->p->n)
        return r->word(r->ctx, text, n);
    const step *s = &r->p->step[depth];
    if (s->mark)
        TRY(rewrite(r, depth, &text, &n, first));
    return s->cuts ? cut(r, depth, text, n, first) : run_step(r, depth + 1, text, n, first);
}

pesc_status pretok_split(pretok_run *r, const char *text, size_t n, bool first)
{
    return n > 0 ? run_step(r, 0, text, n, first) : PESC_OK;
}

void pretok_run_free(pretok_run *r)
{
    for (size_t i = 0; i < CHAIN_MAX; i++)
        str_free(&r->buffer[i]);
}
