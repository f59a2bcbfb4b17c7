#include "tokenizer/postproc.h"

#include "base/mem.h"
#include "tokenizer/chain.h"
#include "tokenizer/pipeline.h"

#include <string.h>

typedef struct frame {
    id_list *front, *back;
} frame;

/* The ids of a special token a template names, appended to `to`. */
static pesc_status template_ids(const json_t *v, const char *name, id_list *to, const char *where)
{
    const json_t *row = json_object_get(json_object_get(v, "special_tokens"), name);
    const json_t *ids = json_object_get(row, "ids");
    if (!json_is_array(ids))
        return fail(PESC_FORMAT, "%s: special_tokens: has no ids for '%s'", where, name);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= INT32_MAX)
            return fail(PESC_FORMAT, "%s: special_tokens: the ids of '%s' are not token ids", where,
                        name);
        TRY(id_list_add(to, (int32_t)json_integer_value(id)));
    }
    return PESC_OK;
}

static pesc_status read_template(const json_t *v, id_list *before, id_list *after,
                                 const char *where)
{
    const json_t *list = json_object_get(v, "single");
    int texts = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *piece = json_array_get(list, i);
        const json_t *special = json_object_get(piece, "SpecialToken");
        const char *name = json_string_value(json_object_get(special, "id"));
        const char *text =
            json_string_value(json_object_get(json_object_get(piece, "Sequence"), "id"));
        if (name)
            TRY(template_ids(v, name, texts ? after : before, where));
        else if (text && strcmp(text, "A") == 0)
            texts++;
        else
            return fail(PESC_FORMAT, "%s: single[%zu]: is neither a SpecialToken nor Sequence A",
                        where, i);
    }
    return texts == 1 ? PESC_OK
                      : fail(PESC_UNSUPPORTED,
                             "%s: single: found %d times Sequence A in %s, expected once", where,
                             texts, json_kind(list));
}

/* ["token", id] */
static pesc_status read_pair(const json_t *v, const char *key, id_list *to, const char *where)
{
    const json_t *id = json_array_get(json_object_get(v, key), 1);
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= INT32_MAX)
        return fail(PESC_FORMAT, "%s: %s: expected [\"token\", id]", where, key);
    return id_list_add(to, (int32_t)json_integer_value(id));
}

static pesc_status read_cls_sep(const json_t *v, id_list *before, id_list *after, const char *where)
{
    TRY(read_pair(v, "cls", before, where));
    return read_pair(v, "sep", after, where);
}

static pesc_status append(id_list *to, const id_list *from)
{
    for (size_t i = 0; i < from->n; i++)
        TRY(id_list_add(to, from->ids[i]));
    return PESC_OK;
}

static pesc_status read_step(void *ctx, const json_t *v, const char *type, const char *where)
{
    frame *f = ctx;
    if (strcmp(type, "ByteLevel") == 0)
        return PESC_OK;
    bool template = strcmp(type, "TemplateProcessing") == 0;
    if (!template && strcmp(type, "BertProcessing") != 0 && strcmp(type, "RobertaProcessing") != 0)
        return fail(PESC_UNSUPPORTED, "%s: the post_processor type '%s' is not supported", where,
                    type);
    id_list before = { 0 }, after = { 0 };
    pesc_status s = template ? read_template(v, &before, &after, where)
                             : read_cls_sep(v, &before, &after, where);
    /* This step's ids go outside of those of the steps before it. */
    if (s == PESC_OK)
        s = append(&before, f->front);
    if (s == PESC_OK)
        s = append(f->back, &after);
    mem_free(after.ids);
    if (s != PESC_OK) {
        mem_free(before.ids);
        return s;
    }
    mem_free(f->front->ids);
    *f->front = before;
    return PESC_OK;
}

pesc_status postproc_read(id_list *front, id_list *back, const json_t *v, const char *file)
{
    if (!v || json_is_null(v))
        return PESC_OK;
    static const chain c = { .name = "post_processor", .list = "processors", .step = read_step };
    frame f = { front, back };
    return chain_each(&c, &f, v, file);
}

static pesc_status check(const tokenizer *t, const id_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        size_t n;
        if (!tokenizer_token(t, l->ids[i], &n))
            return fail(PESC_FORMAT,
                        "%s: post_processor: id %d is not in the vocabulary of %lld tokens",
                        t->file, l->ids[i], (long long)t->size);
    }
    return PESC_OK;
}

pesc_status postproc_check(const tokenizer *t)
{
    TRY(check(t, &t->front));
    return check(t, &t->back);
}
