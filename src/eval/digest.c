#include "eval/digest.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>

static void hex(char out[DIGEST_TEXT], const unsigned char *bytes)
{
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

void digest_text(char out[DIGEST_TEXT], const char *p, size_t n)
{
    unsigned char bytes[SHA256_DIGEST_LENGTH];
    SHA256((const unsigned char *)p, n, bytes);
    hex(out, bytes);
}

/* The library's own context is the digest. */
pesc_status digest_open(digest **out)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    if (c && EVP_DigestInit_ex(c, EVP_sha256(), NULL) == 1) {
        *out = (digest *)c;
        return PESC_OK;
    }
    EVP_MD_CTX_free(c);
    *out = NULL;
    return fail_nomem("a SHA-256", 0);
}

void digest_add(digest *d, const char *p, size_t n)
{
    ASSERT(EVP_DigestUpdate((EVP_MD_CTX *)d, p, n) == 1);
}

void digest_close(digest *d, char out[DIGEST_TEXT])
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    if (d && out) {
        ASSERT(EVP_DigestFinal_ex((EVP_MD_CTX *)d, bytes, NULL) == 1);
        hex(out, bytes);
    }
    EVP_MD_CTX_free((EVP_MD_CTX *)d);
}
