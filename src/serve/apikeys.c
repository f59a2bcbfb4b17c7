/* Keys of clients. Digests are compared, all of them and to the last byte, so the time says nothing
 * about a key. */
#include "serve/server.h"

#include "base/io.h"
#include "base/mem.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <string.h>

enum { MAX_FILE = 1 << 20, MIN_KEY = 8 };

static pesc_status add_key(pesc_server *s, const char *path, const char *key, size_t n)
{
    if (n < MIN_KEY)
        return fail(PESC_FORMAT, "%s: key %zu has %zu bytes, expected at least %d", path,
                    s->n_keys + 1, n, MIN_KEY);
    void *more = mem_grow(s->keys, s->n_keys + 1, KEY_BYTES);
    if (!more)
        return fail_nomem("keys", (s->n_keys + 1) * KEY_BYTES);
    s->keys = more;
    SHA256((const unsigned char *)key, n, s->keys[s->n_keys++]);
    return PESC_OK;
}

pesc_status apikeys_read(pesc_server *s, const char *path)
{
    char *text;
    size_t n;
    TRY(io_read_file(path, MAX_FILE, &text, &n));
    pesc_status st = PESC_OK;
    for (char *p = text; st == PESC_OK && *p;) {
        size_t len = strcspn(p, "\r\n");
        if (len > 0)
            st = add_key(s, path, p, len);
        p += len + strspn(p + len, "\r\n");
    }
    if (st == PESC_OK && s->n_keys == 0)
        st = fail(PESC_FORMAT, "%s: found no key, expected one a line", path);
    OPENSSL_cleanse(text, n);
    mem_free(text);
    return st;
}

size_t apikeys_match(const pesc_server *s, const char *text, size_t n)
{
    unsigned char digest[KEY_BYTES];
    size_t found = 0;
    SHA256((const unsigned char *)text, n, digest);
    for (size_t i = 0; i < s->n_keys; i++)
        found += (i + 1) * (CRYPTO_memcmp(digest, s->keys[i], KEY_BYTES) == 0);
    return found;
}
