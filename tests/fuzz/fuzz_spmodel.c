/* Any bytes as a tokenizer.model: a refusal, or a model that normalises and cuts text. */
#include "base/mem.h"
#include "tokenizer/spmodel.h"
#include "tokenizer/unigram.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] =
    "  Hello \t world \xef\xac\x81 e\xcc\x81 <ud>\xff \xe4\xbd\xa0\xe5\xa5\xbd";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spmodel *m = NULL;
    unigram *u = NULL;
    str normal = { 0 };
    id_list ids = { 0 };
    if (spmodel_open(&m, data, size, "fuzz") != PESC_OK)
        return 0;
    spmodel_normalise(m, text, strlen(text), size % 2, &normal);
    if (str_ok(&normal) && normal.n > 0 && unigram_open_sp(&u, m) == PESC_OK)
        (void)unigram_encode(u, normal.p, normal.n, &ids);
    for (size_t i = 0; i < ids.n; i++)
        ASSERT(ids.ids[i] >= 0 && (size_t)ids.ids[i] < m->n);
    mem_free(ids.ids);
    unigram_close(u);
    str_free(&normal);
    spmodel_close(m);
    return 0;
}
