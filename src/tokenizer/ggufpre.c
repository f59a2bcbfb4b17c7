#include "tokenizer/tokgguf.h"

#include <stddef.h>
#include <string.h>

#define TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SHORT_FORMS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define SLASH_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The letters with case, as DeepSeek's first tokenizers list them. */
#define CASED                                                                                      \
    "\\x{41}-\\x{5A}\\x{61}-\\x{7A}\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}"          \
    "\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}"         \
    "\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}"                  \
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"      \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"                 \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"                 \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}"        \
    "\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}"         \
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}"                 \
    "\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"                  \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}"                   \
    "\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}"        \
    "\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"         \
    "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"                  \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"                 \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"               \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"         \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
#define WIDE                                                                                       \
    "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+" /* CJK and the blocks between    \
                                                                     them */

static const ggufpre rows[] = {
    { "default gpt-2 gpt2 phi-2 jina-es jina-de mpt olmo roberta-bpe", .gpt2 = true },
    { "starcoder refact command-r smollm codeshell exaone minerva-7b", .gpt2 = true,
      .patterns = { "\\p{N}" } },
    { "llama3 llama-v3 llama-bpe falcon3", .ignore_merges = true,
      .patterns = { SHORT_FORMS "|" BEFORE "\\p{L}+|\\p{N}{1,3}" TAIL } },
    { "dbrx smaug-bpe", .patterns = { SHORT_FORMS "|" BEFORE "\\p{L}+|\\p{N}{1,3}" TAIL } },
    { "qwen2 deepseek-r1-qwen megrez", .nfc = true,
      .patterns = { SHORT_FORMS "|" BEFORE "\\p{L}+|\\p{N}" TAIL } },
    { "stablelm2", .patterns = { SHORT_FORMS "|" BEFORE "\\p{L}+|\\p{N}" TAIL } },
    { "tekken", .ignore_merges = true,
      .patterns = { BEFORE UPPER "*" LOWER "+|" BEFORE UPPER "+" LOWER "*|\\p{N}" SLASH_TAIL } },
    { "gpt-4o llama4",
      .patterns = { BEFORE UPPER "*" LOWER "+" SHORT_FORMS "?|" BEFORE UPPER "+" LOWER
                                 "*" SHORT_FORMS "?|\\p{N}{1,3}" SLASH_TAIL } },
    { "deepseek-llm", .patterns = { "[\\r\\n]", "\\s?[" CASED "]+",
                                    "\\s?[!-/"
                                    ":-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}"
                                    "\\x{3000}-\\x{3002}]+",
                                    "\\s+$", WIDE, "\\p{N}" } },
    { "deepseek-coder", .patterns = { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", WIDE, "\\p{N}" } },
    { "deepseek-v3",
      .patterns = { "\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{30FF}]+",
                    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
                    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|"
                    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" } },
};

const char *const ggufpre_written[] = {
    "gpt-2",  "smollm", "llama-bpe",    "dbrx",           "qwen2",       "stablelm2",
    "tekken", "gpt-4o", "deepseek-llm", "deepseek-coder", "deepseek-v3", NULL,
};

_Static_assert(sizeof ggufpre_written / sizeof *ggufpre_written == sizeof rows / sizeof *rows + 1,
               "every row is written under one of its names");

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; n && (p = strstr(p, word)); p += n)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

const ggufpre *ggufpre_find(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (has_word(rows[i].names, name))
            return &rows[i];
    return NULL;
}
