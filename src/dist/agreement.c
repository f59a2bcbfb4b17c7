#include "dist/agreement.h"

#include "base/mem.h"
#include "base/str.h"

#include <string.h>

static const char what[] = "comparing models, data and options";

/* Keys that are not options, and how a sentence begins where their values differ. */
static const struct {
    const char *key, *text;
} hashes[] = {
    { "base_hash:", "the model is" },
    { "tokenizer_hash:", "the tokenizer is" },
    { "data_hash:", "the data files are" },
    { "eval_data_hash:", "the validation data is" },
    { "config_hash:", "the choice of experts is" }, /* its options were compared one by one */
};

/* Keys whose values may differ: places (what is there is compared by hashes), and what concerns a
 * process alone. */
static bool may_differ(const char *line)
{
    static const char *const keys[] = {
        "model:",         "output:", "data:",      "eval_data:",      "device:", "keep:",
        "lora:",          "- ",      "init_from:", "experts_config:", "  - ",    "experts_from:",
        "domain_experts:"
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strncmp(line, keys[i], strlen(keys[i])) == 0)
            return true;
    return false;
}

/* The line of a text that begins with the key of `line`, or "". */
static const char *same_key(const char *text, const char *line)
{
    size_t key = strcspn(line, ":\n") + 1;
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
        if (strncmp(text, line, key) == 0)
            return text;
    return "";
}

static pesc_status refuse(const char *line, const char *mine)
{
    int n = (int)strcspn(line, "\n"), m = (int)strcspn(mine, "\n");
    for (size_t i = 0; i < sizeof hashes / sizeof *hashes; i++) {
        int key = (int)strlen(hashes[i].key);
        if (m > key && strncmp(line, hashes[i].key, (size_t)key) == 0)
            return fail(PESC_USAGE, "%s not that of rank 0: found hash%.*s, expected%.*s",
                        hashes[i].text, m - key, mine + key, n - key, line + key);
    }
    return fail(PESC_USAGE, "an option is not that of rank 0: found %.*s, expected %.*s", m ? m : 7,
                m ? mine : "nothing", n, line);
}

/* The first line that rank 0 has otherwise. */
static pesc_status compare(const char *first, const char *own)
{
    for (const char *line = first; *line;) {
        size_t n = strcspn(line, "\n");
        const char *mine = same_key(own, line);
        size_t m = strcspn(mine, "\n");
        if (!may_differ(line) && (m != n || memcmp(line, mine, n) != 0))
            return refuse(line, mine);
        line += n + (line[n] == '\n');
    }
    return PESC_OK;
}

pesc_status agreement_check(comm *c, const char *text)
{
    int64_t bytes = (int64_t)strlen(text) + 1;
    TRY(comm_broadcast(c, what, &bytes, sizeof bytes, 0));
    char *first = mem_alloc((size_t)bytes, 1);
    if (!first)
        return fail_nomem("run.yaml", (size_t)bytes);
    if (comm_leads(c))
        memcpy(first, text, (size_t)bytes);
    pesc_status s = comm_broadcast(c, what, first, (size_t)bytes, 0);
    if (s == PESC_OK)
        s = comm_agree_status(c, what, compare(first, text));
    mem_free(first);
    return s;
}
