/* Any bytes as a tokenizer file: a refusal, or a tokenizer whose ids decode without trouble. */
#include "base/mem.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] =
    "  Hello <s> world, it's 1234!\n\n\tdef f(x):  # \xef\xac\x81 e\xcc\x81 <|a|>\xff \xe4\xbd\xa0";

static void use(const tokenizer *t)
{
    id_list ids = { 0 };
    decode_stream *d = NULL;
    unsigned flags = PESC_ADD_SPECIAL | PESC_PARSE_SPECIAL;
    if (tokenizer_encode(t, text, strlen(text), flags, &ids) == PESC_OK &&
        decode_open(&d, t, 0) == PESC_OK) {
        const char *out;
        size_t n;
        for (size_t i = 0; i < ids.n; i++)
            if (decode_feed(d, ids.ids[i], &out, &n) != PESC_OK)
                break;
        (void)decode_finish(d, &out, &n);
    }
    decode_close(d);
    mem_free(ids.ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    tokenizer *t = NULL;
    int fd = memfd_create("fuzz", 0);
    if (fd < 0)
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, data, size) == (ssize_t)size && tokenizer_open_file(&t, path) == PESC_OK)
        use(t);
    tokenizer_close(t);
    close(fd);
    return 0;
}
