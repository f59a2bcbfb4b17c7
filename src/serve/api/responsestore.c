#include "serve/api/responsestore.h"

#include "base/mem.h"
#include "serve/api/response.h"

#include <pthread.h>
#include <string.h>

enum { MAX_KEPT = 1000, MAX_BYTES = 64 << 20 };

typedef struct kept_response {
    char id[48];
    size_t key; /* of the client */
    str talk;   /* its messages, JSON */
    uint64_t used;
} kept_response;

struct responsestore {
    pthread_mutex_t lock;
    kept_response *all; /* [n] */
    size_t n, cap, bytes;
    uint64_t clock;
};

pesc_status responsestore_open(responsestore **out)
{
    responsestore *s = *out = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("responses", sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    return PESC_OK;
}

static void drop(responsestore *s, size_t i)
{
    s->bytes -= s->all[i].talk.n;
    str_free(&s->all[i].talk);
    s->all[i] = s->all[--s->n];
}

void responsestore_close(responsestore *s)
{
    if (!s)
        return;
    while (s->n)
        drop(s, s->n - 1);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->all);
    mem_free(s);
}

bool responsestore_wants(const call *c)
{
    const json_t *store = json_object_get(c->api.original, "store");
    return c->x->srv->responses && c->api.dialect == DIALECT_RESPONSES && !json_is_false(store);
}

/* What was said so far, with the answer; instructions hold for one request only. */
static json_t *talk_of(const call *c)
{
    json_t *talk = json_copy((json_t *)(uintptr_t)c->api.messages);
    const json_t *first = json_array_get(talk, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    if (role && strcmp(role, "system") == 0 && json_value(c->api.original, "instructions"))
        json_array_remove(talk, 0);
    json_t *last = response_message(&c->choices[0]);
    json_object_del(last, "refusal");
    json_object_del(last, "reasoning");
    json_array_append_new(talk, last);
    return talk;
}

void responsestore_keep(const call *c)
{
    responsestore *s = c->x->srv->responses;
    if (!responsestore_wants(c) || c->error.status)
        return;
    kept_response one = { .key = c->x->key };
    json_t *talk = talk_of(c);
    json_put(&one.talk, talk, JSON_COMPACT);
    json_decref(talk);
    memcpy(one.id, c->id, sizeof one.id);
    pthread_mutex_lock(&s->lock);
    one.used = ++s->clock;
    if (!str_ok(&one.talk) || one.talk.n > MAX_BYTES ||
        !mem_room((void **)&s->all, &s->cap, s->n, sizeof *s->all)) {
        str_free(&one.talk);
    } else {
        s->all[s->n++] = one;
        s->bytes += one.talk.n;
    }
    while (s->n > MAX_KEPT || s->bytes > MAX_BYTES) {
        size_t oldest = 0;
        for (size_t i = 0; i < s->n; i++)
            oldest = s->all[i].used < s->all[oldest].used ? i : oldest;
        drop(s, oldest);
    }
    pthread_mutex_unlock(&s->lock);
}

/* The messages of a response of the same client; NULL: there are none. */
static json_t *find(responsestore *s, const char *id, size_t key)
{
    json_t *talk = NULL;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n; i++)
        if (s->all[i].key == key && strcmp(s->all[i].id, id) == 0) {
            s->all[i].used = ++s->clock;
            if (json_parse(&talk, s->all[i].talk.p, s->all[i].talk.n, "a response") != PESC_OK)
                status_clear();
        }
    pthread_mutex_unlock(&s->lock);
    return talk;
}

bool responsestore_go_on(call *c, api_error *e)
{
    const json_t *v = json_value(c->api.original, "previous_response_id");
    const char *id = json_string_value(v);
    if (c->api.dialect != DIALECT_RESPONSES || !v)
        return true;
    json_t *talk = id && c->x->srv->responses ? find(c->x->srv->responses, id, c->x->key) : NULL;
    if (!talk)
        return api_refuse(e, 404, "previous_response_not_found", "previous_response_id",
                          "previous_response_id: there is no response of that id%s",
                          c->x->srv->responses ? "" : "; the server keeps them with --store");
    json_t *now = json_object_get(c->api.body, "messages");
    const char *role = json_string_value(json_object_get(json_array_get(now, 0), "role"));
    const char *before = json_string_value(json_object_get(json_array_get(talk, 0), "role"));
    bool system = role && strcmp(role, "system") == 0;
    if (system && before && strcmp(before, "system") == 0) /* what this request says holds */
        json_array_remove(talk, 0);
    if (system) {
        json_array_insert(talk, 0, json_array_get(now, 0));
        json_array_remove(now, 0);
    }
    bool good =
        json_array_extend(talk, now) == 0 && json_object_set(c->api.body, "messages", talk) == 0;
    c->api.messages = json_object_get(c->api.body, "messages");
    json_decref(talk);
    return good || api_failed(e, fail_nomem("a request", 0));
}
