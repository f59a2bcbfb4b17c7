/* mem: the only access to the heap, so that tests can make any allocation fail.
 *
 * Sizes are counted in elements and multiplied with an overflow check. All return NULL on failure;
 * the caller turns that into fail_nomem(). Memory is not zeroed unless the name says so. */
#ifndef PESC_BASE_MEM_H
#define PESC_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t n, size_t size);
void *mem_zalloc(size_t n, size_t size);
void *mem_grow(void *p, size_t n, size_t size); /* realloc; on failure `p` stays valid */
/* Makes room for element number n in an array of *cap elements that doubles; false: no memory, and
 * nothing changed. *array may be NULL with *cap 0. */
bool mem_room(void **array, size_t *cap, size_t n, size_t size);
void *mem_aligned(size_t bytes); /* 64-byte aligned, for mem_free() too */
void mem_free(void *p);          /* NULL is allowed */
void mem_trim(void);             /* gives the system back what was freed */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n); /* NUL-terminated copy of n bytes */

/* Test hook: the n-th allocation from now on (1 = the next) returns NULL once; 0 disarms.
 * mem_fail_fired() says whether the armed failure has happened. */
void mem_fail_at(uint64_t n);
bool mem_fail_fired(void);

/* Overflow-checked arithmetic for sizes that come from files: false when the result wraps. */
static inline bool ckd_mul_size(size_t *out, size_t a, size_t b)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool ckd_add_size(size_t *out, size_t a, size_t b)
{
    return !__builtin_add_overflow(a, b, out);
}

#endif
