/* A conversation as token ids: the public face of chat. */
#include "arch/model.h"
#include "base/args.h"
#include "base/mem.h"
#include "base/str.h"

#include <string.h>

const char *const *pesc_chat_formats(void)
{
    return chat_names();
}

const char *pesc_model_chat_format(const pesc_model *m)
{
    return m ? m->info.chat : "";
}

const char *const *pesc_model_chat_stops(const pesc_model *m, size_t *n)
{
    size_t none;
    n = n ? n : &none;
    *n = m && m->stop[0] != NULL;
    if (!m || *n)
        return m ? m->stop : NULL;
    return pesc_chat_stops(m->info.chat, n);
}

const char *const *pesc_chat_stops(const char *format, size_t *n)
{
    const chat_format *f = format ? chat_find(format) : NULL;
    size_t none;
    n = n ? n : &none;
    *n = 0;
    return f ? chat_stops(f, n) : NULL;
}

pesc_status pesc_chat_tokenize(const pesc_model *m, const char *format,
                               const pesc_message *messages, size_t n, int32_t *ids, size_t cap,
                               size_t *count)
{
    status_clear();
    NEED(m);
    NEED_ARRAY(messages, n);
    NEED_ARRAY(ids, cap);
    NEED(count);
    *count = 0;
    for (size_t i = 0; i < n; i++) {
        NEED(messages[i].role);
        NEED(messages[i].content);
    }
    if (!m->tok)
        return fail(PESC_UNSUPPORTED,
                    "the model has no tokenizer, so it cannot hold a conversation");
    bool own = !format || !*format || strcmp(format, CHAT_OWN) == 0;
    chat_writer *w = m->chat;
    if (!own)
        TRY(chat_open(&w, m->tok, format, NULL));
    id_list list = { 0 };
    chat_request r = { .list = messages, .n = n, .end = CHAT_PROMPT };
    pesc_status s = chat_write(w, &r, NULL, &list, NULL);
    if (s == PESC_OK) {
        *count = list.n;
        if (cap > 0)
            memcpy(ids, list.ids, (list.n < cap ? list.n : cap) * sizeof *ids);
    }
    mem_free(list.ids);
    if (!own)
        chat_close(w);
    return s;
}
