#include "tokenizer/control.h"

#include <string.h>

static const struct {
    const char *before, *after; /* after "": the whole text */
} forms[] = {
    { "<|", "|>" },
    { "<\xEF\xBD\x9C", "\xEF\xBD\x9C>" }, /* DeepSeek's bars: U+FF5C */
    { "<start_of_turn>", "" },
    { "<end_of_turn>", "" },
    { "[INST]", "" },
    { "[/INST]", "" },
    { "<s>", "" },
    { "</s>", "" },
    { "<bos>", "" },
    { "<eos>", "" },
    { "<pad>", "" },
    { "<mask>", "" },
};

bool control_form(const char *text, size_t n)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        size_t before = strlen(forms[i].before), after = strlen(forms[i].after);
        bool fits = after ? n > before + after : n == before;
        if (fits && memcmp(text, forms[i].before, before) == 0 &&
            memcmp(text + n - after, forms[i].after, after) == 0)
            return true;
    }
    return false;
}
