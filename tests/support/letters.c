#include "support/letters.h"

#include "base/json.h"
#include "base/str.h"
#include "support/check.h"
#include "support/files.h"

void letters_put(const char *const *control, int n)
{
    str s = { 0 };
    str_puts(&s, "{\"version\":\"1.0\",\"added_tokens\":[");
    for (int i = 0; i < n; i++)
        str_printf(&s,
                   "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"lstrip\":false,"
                   "\"rstrip\":false,\"single_word\":false,\"normalized\":false}",
                   i ? "," : "", LETTERS_CONTROL + i, control[i]);
    str_puts(&s, "],\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,"
                 "\"decoder\":null,\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{");
    for (int c = ' '; c < 127; c++)
        str_printf(&s, "\"%s%c\":%d,", c == '"' || c == '\\' ? "\\" : "", c, c);
    for (int i = 0; i < n; i++)
        str_printf(&s, "\"%s\":%d,", control[i], LETTERS_CONTROL + i);
    str_puts(&s, "\"\\n\":10,\"\\n\\n\":11},\"merges\":[[\"\\n\",\"\\n\"]]}}");
    assert_true(str_ok(&s));
    files_put("tokenizer.json", s.p, s.n);
    str_free(&s);
}

tokenizer *letters_open(json_t *template)
{
    tokenizer *t;
    json_t *config =
        json_pack("{ss ss so}", "bos_token", "<s>", "eos_token", "</s>", "chat_template", template);
    str s = { 0 };
    json_put(&s, config, 0);
    files_text("tokenizer_config.json", s.p);
    must(tokenizer_open_dir(&t, files_path("")));
    str_free(&s);
    json_decref(config);
    return t;
}
