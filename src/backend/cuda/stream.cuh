/* stream: up to 8 rows of bf16 activations against rows of NF4 matrices, as decoding has them, on
 * Hopper.
 *
 * Bound: reading the weights once, and nothing else may cost time. So the warps of a block have
 * three parts, which meet at barriers in shared memory only:
 *   copy       one warp copies weights into a ring of stages (bulk copies, which need neither
 *              registers nor the load units), up to 150 KB ahead
 *   multiply   16 warps
 *   finish     four warps add the sums of the 16 and store results
 * There is one block on each multiprocessor, and it stays for all of its tiles.
 *
 * Work: a tile is 16 rows of a matrix. A group is 256 elements of k, four quantisation blocks. In a
 * stage each of the 16 warps has one group of one tile: up to 16 groups of k make a piece, a long
 * row has several pieces, one stage each, and of short rows several tiles share a stage. The warps
 * of a tile leave their sums in one of four sets in shared memory; they are added in order, so
 * results repeat bit for bit.
 *
 * A warp and its group: lane 4g+t has 16 neighbours of rows g and g+8 of each quantisation block,
 * decodes each byte by one look-up (nf4_table.cuh) and multiplies with mma.m16n8k16. Which element
 * of k stands where in an mma is free as long as both operands agree, so its part of the
 * activations is the same 16 neighbours of token g; they stay in registers while only the tile
 * changes. The four mma of a block are summed in f32, and that sum is scaled in f32.
 *
 * Shared memory: rows are in a stage as in memory, so that a tile that has its whole rows there is
 * one copy of codes and one of scales (a copy costs some 20 ns beside its bytes). The rows that
 * lanes read together begin in the same bank, so each begins with another quantisation block. The
 * look-up table uses every other 128 bytes; the sums are in the gaps.
 *
 * Who uses it: a kernel has a WORK, which says what its tiles are. Each part walks through them
 * with a cursor, which divides nothing after it was made:
 *   void prepare()            by the warp that copies, before the first copy
 *   void wait()               by the others, before the first activations are read
 *   void ready()              by all, after these two: sets begin and end
 *   int begin, end            the block's tiles [begin, end)
 *   cursor at(i)              of tile i
 *   void next(cursor &)       to the tile after it, which exists
 *   stream_weights weights(cursor)             the rows of a tile
 *   const bf16 *activations(cursor, token)     NULL: the tile has no such token
 *   int same(cursor)          tiles with equal values have the same activations
 *   void finish(cursor, row, token, y)         a result; all threads of the four warps call it */
#ifndef PESC_BACKEND_CUDA_STREAM_CUH
#define PESC_BACKEND_CUDA_STREAM_CUH

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/nf4_table.cuh"
#include "backend/cuda/overlap.cuh"

enum {
    STREAM_WARPS = 16,
    STREAM_MULTIPLY = STREAM_WARPS * 32, /* threads, the first of the block */
    STREAM_FINISH = 128,                 /* threads, the next ones */
    STREAM_THREADS = STREAM_MULTIPLY + STREAM_FINISH + 32,
    STREAM_TILE = 16,
    STREAM_GROUP = 4 * NF4_BLOCK,
    STREAM_CODES = STREAM_GROUP / 2, /* bytes of a group in a row */
    STREAM_SCALES = 16,
    STREAM_TOKENS = 8,
    STREAM_STAGES = 4, /* at most */
    STREAM_SETS = 4,
    STREAM_SMEM = 227 << 10
};

/* How rows of k elements are cut, and where things are in shared memory. */
struct stream_shape {
    int k, groups;                 /* of a row */
    int row_bytes, row_scales;     /* bytes of codes, number of scales of a row */
    int pieces, warps, slots;      /* of a row; warps of a piece; tiles of a stage */
    int codes_pitch, scales_pitch; /* bytes from row to row of a stage */
    int stage_bytes, stages;
    int room, smem; /* where the kernel's own part begins; bytes of all */
    nf4_values values;
};

/* Rows of a matrix from a tile's first on; `last`: the index in the tile of the last one. */
struct stream_weights {
    const unsigned char *codes;
    const float *scales;
    int last;
};

struct stream_barriers {
    uint64_t full[STREAM_STAGES], empty[STREAM_STAGES]; /* stages of the ring */
    uint64_t finished[STREAM_SETS];                     /* sets of sums, free to be overwritten */
};

typedef __nv_bfloat16 stream_bf16;

/* k must be a multiple of STREAM_GROUP, so that every copy is whole 16-byte pieces. room: bytes of
 * shared memory after the ring, for the barriers and what the kernel adds. */
static inline stream_shape stream_shape_of(int k, size_t room)
{
    stream_shape s = {};
    s.k = k;
    s.groups = k / STREAM_GROUP;
    s.row_bytes = s.groups * STREAM_CODES;
    s.row_scales = s.groups * 4;
    s.pieces = (s.groups + STREAM_WARPS - 1) / STREAM_WARPS;
    s.warps = (s.groups + s.pieces - 1) / s.pieces;
    s.slots = STREAM_WARPS / s.warps;
    s.codes_pitch = s.warps * STREAM_CODES;
    s.scales_pitch = s.warps * STREAM_SCALES;
    s.stage_bytes = s.slots * STREAM_TILE * (s.codes_pitch + s.scales_pitch);
    s.stages = (STREAM_SMEM - (int)room - NF4_TABLE_BYTES) / s.stage_bytes;
    s.stages = s.stages < STREAM_STAGES ? s.stages : STREAM_STAGES;
    s.room = NF4_TABLE_BYTES + s.stages * s.stage_bytes;
    s.smem = s.room + (int)room;
    s.values = nf4_table_values();
    return s;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- walking through stages ---- */

/* A stage: piece `piece` of `tiles` tiles; `warps`: groups of the piece. left: tiles from it on. */
struct stream_stage {
    int left, tiles, piece, warps;
};

__device__ __forceinline__ stream_stage stream_stage_of(const stream_shape &s, int left, int piece)
{
    bool whole = s.pieces == 1;
    return { left, whole ? min(s.slots, left) : 1, piece,
             whole ? s.warps : min(s.warps, s.groups - piece * s.warps) };
}

/* The tiles that are done with the stage: 0 while pieces of its tile are left. */
__device__ __forceinline__ int stream_next(const stream_shape &s, stream_stage &at)
{
    bool last = at.piece + 1 == s.pieces;
    int done = last ? at.tiles : 0;
    at = stream_stage_of(s, at.left - done, last ? 0 : at.piece + 1);
    return done;
}

/* An index that goes round, and the parity of its rounds. */
struct stream_turn {
    int at, parity;
    __device__ __forceinline__ void next(int n)
    {
        bool round = ++at == n;
        at = round ? 0 : at;
        parity ^= round;
    }
};

/* ---- copying: one warp ---- */

__device__ __forceinline__ void stream_copy(void *to, const void *from, int bytes, uint64_t *bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(hopper_address(to)),
                 "l"(from), "r"(bytes), "r"(hopper_address(bar))
                 : "memory");
}

/* Several whole tiles: a lane has one of them. */
template <class WORK>
__device__ __forceinline__ void
stream_fill_tiles(const stream_shape &s, const WORK &work, const stream_stage &at,
                  typename WORK::cursor tile, unsigned char *stage, uint64_t *full)
{
    int lane = threadIdx.x % 32, rows = 0;
    stream_weights w = {};
    if (lane < at.tiles) {
        for (int i = 0; i < lane; i++)
            work.next(tile);
        w = work.weights(tile);
        rows = w.last + 1;
    }
    int all = __reduce_add_sync(~0u, rows);
    if (lane == 0)
        hopper_arrive_expecting(full, all * (s.codes_pitch + s.scales_pitch));
    __syncwarp();
    if (rows == 0)
        return;
    stage += lane * STREAM_TILE * s.codes_pitch;
    stream_copy(stage, w.codes, rows * s.codes_pitch, full);
    stage += (s.slots - lane) * STREAM_TILE * s.codes_pitch + lane * STREAM_TILE * s.scales_pitch;
    stream_copy(stage, w.scales, rows * s.scales_pitch, full);
}

/* A piece of the rows of one tile: a lane has the codes or the scales of a row. */
__device__ __forceinline__ void stream_fill_piece(const stream_shape &s, const stream_weights &w,
                                                  const stream_stage &at, unsigned char *stage,
                                                  uint64_t *full)
{
    int lane = threadIdx.x % 32, row = lane % STREAM_TILE;
    int codes = at.warps * STREAM_CODES, scales = at.warps * STREAM_SCALES;
    if (lane == 0)
        hopper_arrive_expecting(full, (w.last + 1) * (codes + scales));
    __syncwarp();
    if (row > w.last)
        return;
    if (lane < STREAM_TILE)
        stream_copy(stage + row * s.codes_pitch,
                    w.codes + (int64_t)row * s.row_bytes + at.piece * s.codes_pitch, codes, full);
    else
        stream_copy(stage + STREAM_TILE * s.codes_pitch + row * s.scales_pitch,
                    w.scales + (int64_t)row * s.row_scales + at.piece * s.warps * 4, scales, full);
}

/* The ring is full before the others join, because they wait for the kernel before this one first.
 * Of rows that a matrix does not have, a stage keeps what it had; finish() leaves them out. */
template <class WORK>
__device__ __forceinline__ void stream_copy_all(const stream_shape &s, const WORK &work,
                                                unsigned char *ring, stream_barriers &bar)
{
    stream_stage at = stream_stage_of(s, work.end - work.begin, 0);
    stream_turn turn = { 0, 1 };
    bool joined = false;
    typename WORK::cursor tile = {};
    if (at.left > 0)
        tile = work.at(work.begin);
    for (int i = 0; at.left > 0; i++) {
        if (i == s.stages) {
            joined = true;
            __syncthreads();
        }
        hopper_wait(&bar.empty[turn.at], turn.parity);
        unsigned char *stage = ring + turn.at * s.stage_bytes;
        if (s.pieces == 1)
            stream_fill_tiles(s, work, at, tile, stage, &bar.full[turn.at]);
        else
            stream_fill_piece(s, work.weights(tile), at, stage, &bar.full[turn.at]);
        int done = stream_next(s, at);
        for (int j = 0; j < done && at.left > 0; j++)
            work.next(tile);
        turn.next(s.stages);
    }
    if (!joined)
        __syncthreads();
}

/* ---- multiplying: 16 warps ---- */

/* A lane's activations of a group: token g, 16 neighbours of each quantisation block. */
__device__ __forceinline__ void stream_load_x(uint32_t (&x)[4][8], const stream_bf16 *row,
                                              int group)
{
    const uint4 *from = (const uint4 *)(row + group * STREAM_GROUP) + threadIdx.x % 4 * 2;
#pragma unroll
    for (int q = 0; q < 4; q++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint4 v = row ? from[q * 8 + h] : make_uint4(0, 0, 0, 0);
            x[q][4 * h] = v.x, x[q][4 * h + 1] = v.y, x[q][4 * h + 2] = v.z, x[q][4 * h + 3] = v.w;
        }
}

/* The lane's 8 bytes of each quantisation block of a row: first loaded in an order that begins with
 * block g % 4, so that eight rows are in different banks, then put in order. */
__device__ __forceinline__ void stream_load_codes(uint2 (&w)[4], const unsigned char *row)
{
    int g = threadIdx.x % 32 / 4;
    uint2 r[4], t[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        r[i] = *(const uint2 *)(row + (i + g) % 4 * 32 + threadIdx.x % 4 * 8);
#pragma unroll
    for (int i = 0; i < 4; i++)
        t[i] = g & 1 ? r[(i + 3) % 4] : r[i];
#pragma unroll
    for (int i = 0; i < 4; i++)
        w[i] = g & 2 ? t[(i + 2) % 4] : t[i];
}

/* sum = the group's products. codes, scales: of row g of the tile, at the group. */
__device__ __forceinline__ void
stream_multiply(float (&sum)[4], const stream_shape &s, const unsigned char *table,
                const unsigned char *codes, const unsigned char *scales, const uint32_t (&x)[4][8])
{
    uint32_t at = threadIdx.x % 32 * 4;
    float4 low = *(const float4 *)scales, high = *(const float4 *)(scales + 8 * s.scales_pitch);
    float of_low[4] = { low.x, low.y, low.z, low.w };
    float of_high[4] = { high.x, high.y, high.z, high.w };
    uint2 w0[4], w1[4];
    stream_load_codes(w0, codes);
    stream_load_codes(w1, codes + 8 * s.codes_pitch);
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum[i] = 0;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        float block[4] = {};
#pragma unroll
        for (int m = 0; m < 4; m++) { /* two bytes of each row */
            uint32_t u0 = m < 2 ? w0[q].x : w0[q].y, u1 = m < 2 ? w1[q].x : w1[q].y, a[4];
            a[0] = m % 2 ? nf4_table_pair<2>(table, u0, at) : nf4_table_pair<0>(table, u0, at);
            a[1] = m % 2 ? nf4_table_pair<2>(table, u1, at) : nf4_table_pair<0>(table, u1, at);
            a[2] = m % 2 ? nf4_table_pair<3>(table, u0, at) : nf4_table_pair<1>(table, u0, at);
            a[3] = m % 2 ? nf4_table_pair<3>(table, u1, at) : nf4_table_pair<1>(table, u1, at);
            warp_mma_bf16(block, a, x[q][2 * m], x[q][2 * m + 1]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[i] = fmaf(i < 2 ? of_low[q] : of_high[q], block[i], sum[i]);
    }
}

/* Where the sums i of a warp's lanes are: gaps of the table. */
__device__ __forceinline__ float *stream_sums(unsigned char *table, int set, int warp, int i)
{
    return (float *)(table + ((set * STREAM_WARPS + warp) * 4 + i) * NF4_TABLE_ENTRY +
                     NF4_TABLE_ENTRY / 2);
}

/* Named barriers: the sums of a set are there. All warps that multiply arrive, those that finish
 * wait. */
enum { STREAM_BARRIER = 8 };

__device__ __forceinline__ void stream_summed(int set)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(STREAM_BARRIER + set),
                 "n"(STREAM_MULTIPLY + STREAM_FINISH)
                 : "memory");
}

__device__ __forceinline__ void stream_wait_summed(int set)
{
    asm volatile("bar.sync %0, %1;" ::"r"(STREAM_BARRIER + set),
                 "n"(STREAM_MULTIPLY + STREAM_FINISH)
                 : "memory");
}

template <class WORK>
__device__ __forceinline__ void stream_multiply_all(const stream_shape &s, const WORK &work,
                                                    unsigned char *table, stream_barriers &bar)
{
    const unsigned char *ring = table + NF4_TABLE_BYTES;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
    int slot = warp / s.warps, group = warp % s.warps, row = slot * STREAM_TILE + g, have = -1;
    int codes = row * s.codes_pitch + group * STREAM_CODES;
    int scales =
        s.slots * STREAM_TILE * s.codes_pitch + row * s.scales_pitch + group * STREAM_SCALES;
    stream_stage at = stream_stage_of(s, work.end - work.begin, 0);
    stream_turn turn = { 0, 0 }, set = { 0, 1 };
    typename WORK::cursor tile = {};
    if (slot < at.tiles)
        tile = work.at(work.begin + slot);
    uint32_t x[4][8];
    float sum[4] = {};
    while (at.left > 0) {
        bool mine = slot < at.tiles && group < at.warps;
        int want = mine ? work.same(tile) * s.pieces + at.piece : have;
        if (want != have)
            stream_load_x(x, work.activations(tile, g), at.piece * s.warps + group);
        have = want;
        hopper_wait(&bar.full[turn.at], turn.parity);
        const unsigned char *stage = ring + turn.at * s.stage_bytes;
        if (mine)
            stream_multiply(sum, s, table, stage + codes, stage + scales, x);
        __syncwarp();
        if (lane == 0)
            hopper_arrive(&bar.empty[turn.at]);
        hopper_wait(&bar.finished[set.at], set.parity);
#pragma unroll
        for (int j = 0; j < 4; j++)
            stream_sums(table, set.at, warp, j)[lane] = sum[j];
        stream_summed(set.at);
        turn.next(s.stages);
        set.next(STREAM_SETS);
        int done = stream_next(s, at);
        for (int j = 0; j < done && slot < at.tiles; j++)
            work.next(tile);
    }
}

/* ---- finishing: four warps ---- */

/* Adds the sums of a stage's warps, and over the pieces of a row. A thread has one row and token of
 * each tile. */
template <class WORK>
__device__ __forceinline__ void stream_finish_all(const stream_shape &s, WORK &work,
                                                  unsigned char *table, stream_barriers &bar)
{
    int lane = threadIdx.x % 32, i = threadIdx.x / 32 - STREAM_WARPS;
    int row = lane / 4 + i / 2 * 8, token = lane % 4 * 2 + i % 2;
    stream_stage at = stream_stage_of(s, work.end - work.begin, 0);
    stream_turn set = { 0, 0 };
    typename WORK::cursor tile = {};
    if (at.left > 0)
        tile = work.at(work.begin);
    float y = 0;
    while (at.left > 0) {
        stream_wait_summed(set.at);
        typename WORK::cursor one = tile;
        for (int slot = 0; slot < at.tiles; slot++) {
            float part[STREAM_WARPS];
            if (slot > 0)
                work.next(one);
#pragma unroll
            for (int w = 0; w < STREAM_WARPS; w++)
                part[w] =
                    w < at.warps ? stream_sums(table, set.at, slot * s.warps + w, i)[lane] : 0;
            __syncwarp();
            if (lane == 0 && slot == at.tiles - 1)
                hopper_arrive(&bar.finished[set.at]);
            y = at.piece ? y : 0;
#pragma unroll
            for (int w = 0; w < STREAM_WARPS; w++)
                y += part[w];
            if (at.piece == s.pieces - 1)
                work.finish(one, row, token, y);
        }
        if (stream_next(s, at) && at.left > 0) {
            work.next(one);
            tile = one;
        }
        set.next(STREAM_SETS);
    }
}

/* The body of a kernel. */
template <class WORK>
__device__ __forceinline__ void stream_run(const stream_shape &s, WORK &work, unsigned char *smem,
                                           stream_barriers &bar)
{
    if (threadIdx.x >= STREAM_MULTIPLY + STREAM_FINISH) {
        if (threadIdx.x % 32 == 0) {
            for (int i = 0; i < s.stages; i++) {
                hopper_barrier_init(&bar.full[i], 1);
                hopper_barrier_init(&bar.empty[i], STREAM_WARPS);
            }
            for (int i = 0; i < STREAM_SETS; i++)
                hopper_barrier_init(&bar.finished[i], STREAM_FINISH / 32);
            hopper_barrier_publish();
        }
        __syncwarp();
        work.prepare();
        __syncwarp();
        work.ready();
        stream_copy_all(s, work, smem + NF4_TABLE_BYTES, bar);
        return;
    }
    if (threadIdx.x < STREAM_MULTIPLY)
        nf4_table_fill<STREAM_MULTIPLY>(smem, s.values);
    work.wait();
    __syncthreads();
    work.ready();
    if (threadIdx.x < STREAM_MULTIPLY)
        stream_multiply_all(s, work, smem, bar);
    else
        stream_finish_all(s, work, smem, bar);
}

#endif

#endif
