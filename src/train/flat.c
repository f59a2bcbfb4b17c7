#include "train/flat.h"

enum { BLOCK = 256, USUAL = 64, LARGE = 1 << 16 };

int64_t flat_segment(int64_t n)
{
    int64_t wanted = n / LARGE < USUAL ? USUAL : n / LARGE;
    wanted = wanted < FLAT_SEGMENTS ? wanted : FLAT_SEGMENTS;
    int64_t segment = (n + wanted - 1) / wanted;
    return segment < BLOCK ? BLOCK : (segment + BLOCK - 1) / BLOCK * BLOCK;
}

int64_t flat_most(int64_t n, int64_t processes)
{
    int64_t segment = flat_segment(n), segments = (n + segment - 1) / segment;
    int64_t most = (segments + processes - 1) / processes * segment;
    return most < n ? most : n;
}

flat_range flat_within(flat_range a, flat_range b)
{
    flat_range r = { a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end };
    return r.first < r.end ? r : (flat_range){ b.first, b.first };
}

tensor flat_part(tensor flat, flat_range r, int64_t per)
{
    int64_t first = r.first / per, end = (r.end + per - 1) / per;
    tensor t = { .dt = flat.dt, .nd = 1, .ne = { end > first ? end - first : 0 } };
    t.data = (char *)flat.data + (size_t)first * dtype_block_bytes(flat.dt);
    return t;
}
