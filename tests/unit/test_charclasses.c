/* Classes of characters over all code points, as Hugging Face `tokenizers` 0.23 has them: checksums
 * of what its pre-tokenizers answer. */
#include "base/utf8.h"
#include "support/check.h"
#include "tokenizer/pretok.h"

enum { MAX_CODE = 0x110000 };
#define FNV_BASIS 0xcbf29ce484222325u
#define FNV_PRIME 0x100000001b3u

/* The members of a class in ascending order. */
static const struct {
    const char *pattern;
    uint64_t members;
} classes[] = {
    { "\\w", 0xBA0BA63C2887B6D9 },
    { "[\\w]", 0xDD59D4F8983618E8 },
    { "\\W", 0xAFB53CE3D0D4D601 },
    { "\\d", 0x8AB68431D58920AD },
    { "\\s", 0x231591AD12FFE059 },
    { "[[:alpha:]]", 0x8876FD6512EB5D44 },
    { "[[:lower:]]", 0x2185094A38B193C0 },
    { "[[:upper:]]", 0x2475590B62CAB912 },
    { "[[:punct:]]", 0x758ACA89BB6FB78D },
    { "[[:alnum:]]", 0x5B23064836F78248 },
    { "\\p{Alphabetic}", 0x8876FD6512EB5D44 },
    { "\\p{L}", 0x9ABBEC5090CDD78D },
    { "\\P{M}", 0x0377EC55936F388E },
    { "\\p{Mn}", 0xA7DE5E1E35F2F7DA },
    { "\\P{Mn}", 0xBDD774C7BBB51ED8 },
    { "\\p{Mc}", 0xE852C808CEB73828 },
    { "\\p{C}", 0xE0D7EF3B30DD1613 },
    { "\\P{C}", 0xA84E8C59CCD8F6B5 },
    { "\\p{Cn}", 0xDB6360DE0BE4AB9D },
    { "\\p{Cf}", 0x722312B9B720C35E },
    { "\\p{N}", 0x88882B4D56227662 },
    { "\\p{Latin}", 0xCB50FE6CA387F485 },
    { "\\p{Cyrl}", 0xF663C804A6CC59FD },
    { "\\P{Han}", 0x1ED2762E6D6CFD37 },
    { "\\p{Common}", 0x70E8E6EF0BE6B0C2 },
    { "[^\\s\\p{L}\\p{N}]", 0x7EB8EC33C6ED10E2 },
};

/* How many words there are of a letter, the character and a letter. */
static const struct {
    const char *json;
    uint64_t words;
} steps[] = {
    { "{\"type\":\"Whitespace\"}", 0xF9DD7311B800334B },
    { "{\"type\":\"Punctuation\"}", 0xB437C4927ED6AE4E },
    { "{\"type\":\"Digits\"}", 0xA9DD535D1F11F8DE },
    { "{\"type\":\"WhitespaceSplit\"}", 0xF0C280BE9162ECAD },
    { "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"\\\\b\"}}",
      0xC9B42C4C71AD94CA },
    { "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"\\\\B\"}}",
      0xC9C1619B46F11510 },
};

static bool is_character(uint32_t cp)
{
    return cp < 0xD800 || cp >= 0xE000;
}

static void classes_have_the_same_members(void **state)
{
    (void)state;
    regex_scratch *scratch;
    must(regex_scratch_open(&scratch));
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        regex *r;
        uint64_t sum = FNV_BASIS;
        must(regex_open(&r, classes[i].pattern, strlen(classes[i].pattern), "test"));
        for (uint32_t cp = 1; cp < MAX_CODE; cp++) {
            char text[4];
            bool found = false;
            if (!is_character(cp))
                continue;
            budget work = { 0 };
            size_t n = (size_t)utf8_encode(cp, text);
            budget_add(&work, n);
            regex_walk w = { .r = r, .scratch = scratch, .work = &work, .text = text, .n = n };
            must(regex_next(&w, &found));
            sum = found ? (sum ^ cp) * FNV_PRIME : sum;
        }
        if (sum != classes[i].members)
            fail_msg("%s has other members: 0x%016llX", classes[i].pattern,
                     (unsigned long long)sum);
        regex_close(r);
    }
    regex_scratch_close(scratch);
}

static pesc_status count_word(void *ctx, const char *text, size_t n)
{
    (void)text;
    assert_true(n > 0);
    ++*(uint64_t *)ctx;
    return PESC_OK;
}

static void steps_cut_at_the_same_characters(void **state)
{
    (void)state;
    regex_scratch *scratch;
    must(regex_scratch_open(&scratch));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        json_t *json;
        pretok *p;
        uint64_t sum = FNV_BASIS;
        must(json_parse(&json, steps[i].json, strlen(steps[i].json), "test"));
        must(pretok_open(&p, json, "t.json"));
        for (uint32_t cp = 1; cp < MAX_CODE; cp++) {
            char text[8] = "\xC4\x81";
            uint64_t words = 0;
            if (!is_character(cp))
                continue;
            size_t n = 2 + (size_t)utf8_encode(cp, text + 2);
            text[n++] = '\xC4';
            text[n++] = '\x81';
            budget work = { 0 };
            budget_add(&work, n);
            pretok_run r = {
                .p = p, .rs = scratch, .work = &work, .word = count_word, .ctx = &words
            };
            must(pretok_split(&r, text, n, true));
            pretok_run_free(&r);
            sum = (sum ^ words) * FNV_PRIME;
        }
        if (sum != steps[i].words)
            fail_msg("%s cuts elsewhere: 0x%016llX", steps[i].json, (unsigned long long)sum);
        pretok_close(p);
        json_decref(json);
    }
    regex_scratch_close(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_have_the_same_members),
        cmocka_unit_test(steps_cut_at_the_same_characters),
    };
    return cmocka_run_group_tests_name("charclasses", tests, NULL, NULL);
}
