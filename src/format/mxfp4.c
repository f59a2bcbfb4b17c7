#include "format/mxfp4.h"

#include "base/mem.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 32, BLOCK_BYTES = 16 };

static const char blocks_tail[] = "_blocks", scales_tail[] = "_scales";

/* The code of element i of a block is in byte i / 2, the even ones in the low half. */
static pesc_status read_mxfp4(const weight *w, int64_t first, int64_t n, float *out)
{
    static const float values[8] = { 0, 0.5F, 1, 1.5F, 2, 3, 4, 6 };
    const unsigned char *scales = w->parts;
    for (int64_t i = first; i < first + n; i++) {
        unsigned char two = w->data[i / 2], code = i % 2 ? two >> 4 : two & 15;
        int scale = scales[i / BLOCK];
        if (scale == 255)
            return fail(PESC_FORMAT,
                        "%s: tensor %s: the scale of block %lld is not a number, expected 0 to 254",
                        w->file, w->name, (long long)(i / BLOCK));
        float x = ldexpf(values[code & 7], scale - 127);
        *out++ = code & 8 ? -x : x;
    }
    return PESC_OK;
}

static bool fits(const weight *b, const weight *s)
{
    return b->dt == DT_U8 && s->dt == DT_U8 && b->nd >= 2 && s->nd == b->nd - 1 &&
           b->ne[b->nd - 1] == BLOCK_BYTES &&
           memcmp(b->ne, s->ne, (size_t)s->nd * sizeof *s->ne) == 0;
}

static pesc_status join(weights *ws, unsigned char *drop, size_t i)
{
    weight *b = weights_edit(ws, i);
    char name[WEIGHTS_MAX_NAME + 16];
    size_t stem = strlen(b->name) - strlen(blocks_tail);
    snprintf(name, sizeof name, "%.*s%s", (int)stem, b->name, scales_tail);
    const weight *s = weights_find(ws, name);
    if (!s)
        return fail(PESC_FORMAT, "%s: tensor %s: has no %s, the scales of its blocks", b->file,
                    b->name, name);
    if (!fits(b, s))
        return fail(PESC_FORMAT,
                    "%s: tensor %s: expected blocks of %d bytes with one scale each in %s, all U8",
                    b->file, b->name, BLOCK_BYTES, name);
    drop[s - weights_at(ws, 0)] = 1;
    b->dt = DT_BF16;
    b->nd--;
    b->ne[b->nd - 1] *= BLOCK;
    b->unpermute_heads = -1;
    b->read = read_mxfp4;
    b->parts = s->data;
    return PESC_OK;
}

pesc_status mxfp4_group(weights *ws)
{
    size_t n = weights_count(ws), groups = 0;
    unsigned char *drop = mem_zalloc(n, 1);
    if (!drop)
        return fail_nomem("a table of weights", n);
    pesc_status s = PESC_OK;
    for (size_t i = 0; i < n && s == PESC_OK; i++)
        if (str_ends(weights_at(ws, i)->name, blocks_tail)) {
            s = join(ws, drop, i);
            groups++;
        }
    if (s == PESC_OK && groups)
        weights_drop(ws, drop);
    mem_free(drop);
    return s;
}
