#include "tokenizer/bytetoken.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

int bytetoken_value(const char *text, size_t n)
{
    if (n != BYTETOKEN_LENGTH || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = str_hex_digit(text[3]), low = str_hex_digit(text[4]);
    return high >= 0 && low >= 0 ? high * 16 + low : -1;
}

void bytetoken_name(char name[BYTETOKEN_LENGTH + 1], int byte)
{
    snprintf(name, BYTETOKEN_LENGTH + 1, "<0x%02X>", (unsigned)byte & 0xFF);
}
