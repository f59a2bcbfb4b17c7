/* stream: up to 8 rows of bf16 activations against rows of NF4 matrices, as decoding has them, on
 * Hopper.
 *
 * Bound: reading the weights once, and nothing else may cost time. So one warp of a block does
 * nothing but copy weights into a ring of stages in shared memory (bulk copies, which need neither
 * registers nor the load units), up to 150 KB ahead; 16 warps multiply. There is one block on each
 * multiprocessor, and it stays for all of its tiles.
 *
 * Work: a tile is 16 rows of a matrix. A group is 256 elements of k, four quantisation blocks. In a
 * stage each of the 16 warps has one group of one tile: up to 16 groups of k make a piece, a long
 * row has several pieces, one stage each, and of short rows several tiles share a stage. The warps
 * of a tile leave their sums in shared memory; four warps add them in order and finish the result,
 * so results repeat bit for bit.
 *
 * A warp and its group: lane 4g+t has 16 neighbours of rows g and g+8 of each quantisation block,
 * decodes each byte by one look-up (nf4_table.cuh) and multiplies with mma.m16n8k16. Which element
 * of k stands where in an mma is free as long as both operands agree, so its part of the
 * activations is the same 16 neighbours of token g; they stay in registers while only the tile
 * changes. The four mma of a block are summed in f32, and that sum is scaled in f32.
 *
 * Shared memory: a row in a stage takes a little more than it has, so that the rows that lanes read
 * together are in different banks. The look-up table uses every other 128 bytes; the warps' sums
 * are in the gaps.
 *
 * Who uses it: a kernel has a WORK, which says what its tiles are:
 *   void prepare()            by the warp that copies, before the first copy
 *   void wait()               by the others, before the first activations are read
 *   void ready()              by all, after these two: sets begin and end
 *   int begin, end            the block's tiles [begin, end)
 *   stream_weights weights(i) the rows of tile i
 *   const bf16 *activations(i, token)   NULL: tile i has no such token
 *   int same(i)               tiles with equal values have the same activations
 *   void finish(i, row, token, y)       a result; all 128 threads of the four warps call it */
#ifndef PESC_BACKEND_CUDA_STREAM_CUH
#define PESC_BACKEND_CUDA_STREAM_CUH

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/nf4_table.cuh"
#include "backend/cuda/overlap.cuh"

enum {
    STREAM_WARPS = 16,
    STREAM_THREADS = (STREAM_WARPS + 1) * 32, /* and the warp that copies */
    STREAM_FINISH = 128,                      /* threads that add the warps' sums */
    STREAM_TILE = 16,
    STREAM_GROUP = 4 * NF4_BLOCK,
    STREAM_CODES = STREAM_GROUP / 2, /* bytes of a group in a row */
    STREAM_SCALES = 4 * sizeof(float),
    STREAM_TOKENS = 8,
    STREAM_STAGES = 4, /* at most */
    STREAM_SMEM = 227 << 10
};

/* How rows of k elements are cut, and where things are in shared memory. */
struct stream_shape {
    int k, groups;                 /* of a row */
    int row_bytes, row_scales;     /* bytes of codes, number of scales of a row */
    int pieces, warps, slots;      /* of a row; warps of a piece; tiles of a stage */
    int codes_pitch, scales_pitch; /* bytes from row to row */
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
    uint64_t full[STREAM_STAGES], empty[STREAM_STAGES];
};

typedef __nv_bfloat16 stream_bf16;

/* k must be a multiple of STREAM_GROUP, so that every copy is whole 16-byte pieces. room: bytes
 * of shared memory after the ring, for the barriers and what the kernel adds. */
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
    s.codes_pitch = s.warps * STREAM_CODES + 32;
    s.scales_pitch = (s.warps | 1) * (int)STREAM_SCALES;
    s.stage_bytes = s.slots * STREAM_TILE * (s.codes_pitch + s.scales_pitch);
    s.stages = (STREAM_SMEM - (int)room - NF4_TABLE_BYTES) / s.stage_bytes;
    s.stages = s.stages < STREAM_STAGES ? s.stages : STREAM_STAGES;
    s.room = NF4_TABLE_BYTES + s.stages * s.stage_bytes;
    s.smem = s.room + (int)room;
    s.values = nf4_table_values();
    return s;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- stages ---- */

/* Stage number i: piece `piece` of `tiles` tiles from `first` on. */
struct stream_stage {
    int first, tiles, piece, warps; /* warps: groups of the piece */
};

__device__ __forceinline__ int stream_stages(const stream_shape &s, int tiles)
{
    return s.pieces > 1 ? tiles * s.pieces : (tiles + s.slots - 1) / s.slots;
}

__device__ __forceinline__ stream_stage stream_stage_of(const stream_shape &s, int begin, int end,
                                                        int i)
{
    if (s.pieces == 1)
        return { begin + i * s.slots, min(s.slots, end - begin - i * s.slots), 0, s.warps };
    int piece = i % s.pieces;
    return { begin + i / s.pieces, 1, piece, min(s.warps, s.groups - piece * s.warps) };
}

/* ---- copying: one warp ---- */

__device__ __forceinline__ void stream_copy(void *to, const void *from, int bytes, uint64_t *bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(hopper_address(to)),
                 "l"(from), "r"(bytes), "r"(hopper_address(bar))
                 : "memory");
}

/* Each lane copies whole rows, of codes or of scales. Past the last row of a matrix: that one
 * again, because finish() leaves it out. */
template <class WORK>
__device__ __forceinline__ void stream_fill(const stream_shape &s, const WORK &work,
                                            const stream_stage &at, unsigned char *stage,
                                            uint64_t *full)
{
    int lane = threadIdx.x % 32, row = lane % STREAM_TILE;
    int codes = at.warps * STREAM_CODES, scales = at.warps * (int)STREAM_SCALES;
    if (lane == 0)
        hopper_arrive_expecting(full, at.tiles * STREAM_TILE * (codes + scales));
    __syncwarp();
    for (int slot = 0; slot < at.tiles; slot++) {
        stream_weights w = work.weights(at.first + slot);
        int64_t from = min(row, w.last);
        int to = slot * STREAM_TILE + row;
        if (lane < STREAM_TILE)
            stream_copy(stage + to * s.codes_pitch,
                        w.codes + from * s.row_bytes + at.piece * s.warps * STREAM_CODES, codes,
                        full);
        else
            stream_copy(stage + s.slots * STREAM_TILE * s.codes_pitch + to * s.scales_pitch,
                        w.scales + from * s.row_scales + at.piece * s.warps * 4, scales, full);
    }
}

template <class WORK>
__device__ __forceinline__ void stream_fill_all(const stream_shape &s, const WORK &work,
                                                unsigned char *ring, stream_barriers &bar)
{
    int stages = stream_stages(s, work.end - work.begin);
    for (int i = 0; i < stages; i++) {
        int at = i % s.stages;
        if (i == s.stages)
            __syncthreads(); /* the others may begin; see stream_run() */
        if (i >= s.stages)
            hopper_wait(&bar.empty[at], (i / s.stages - 1) & 1);
        stream_fill(s, work, stream_stage_of(s, work.begin, work.end, i), ring + at * s.stage_bytes,
                    &bar.full[at]);
    }
    if (stages <= s.stages)
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

/* sum = the group's products. codes, scales: of row g of the tile, at the group. */
__device__ __forceinline__ void
stream_multiply(float (&sum)[4], const stream_shape &s, const unsigned char *table,
                const unsigned char *codes, const unsigned char *scales, const uint32_t (&x)[4][8])
{
    uint32_t at = threadIdx.x % 32 * 4;
    codes += threadIdx.x % 4 * 8;
    float4 low = *(const float4 *)scales, high = *(const float4 *)(scales + 8 * s.scales_pitch);
    float of_low[4] = { low.x, low.y, low.z, low.w };
    float of_high[4] = { high.x, high.y, high.z, high.w };
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum[i] = 0;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        uint2 w0 = *(const uint2 *)(codes + q * 32);
        uint2 w1 = *(const uint2 *)(codes + 8 * s.codes_pitch + q * 32);
        float block[4] = {};
#pragma unroll
        for (int m = 0; m < 4; m++) { /* two bytes of each row */
            uint32_t u0 = m < 2 ? w0.x : w0.y, u1 = m < 2 ? w1.x : w1.y, a[4];
            a[0] = m % 2 ? nf4_table_pair<2>(table, u0, at) : nf4_table_pair<0>(table, u0, at);
            a[1] = m % 2 ? nf4_table_pair<2>(table, u1, at) : nf4_table_pair<0>(table, u1, at);
            a[2] = m % 2 ? nf4_table_pair<3>(table, u0, at) : nf4_table_pair<1>(table, u0, at);
            a[3] = m % 2 ? nf4_table_pair<3>(table, u1, at) : nf4_table_pair<1>(table, u1, at);
            nf4_mma(block, a, x[q][2 * m], x[q][2 * m + 1]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[i] = fmaf(i < 2 ? of_low[q] : of_high[q], block[i], sum[i]);
    }
}

/* Where the sums i of a warp's lanes are: gaps of the table, in two sets that alternate. */
__device__ __forceinline__ float *stream_sums(unsigned char *table, int set, int warp, int i)
{
    return (float *)(table + ((set * STREAM_WARPS + warp) * 4 + i) * NF4_TABLE_ENTRY +
                     NF4_TABLE_ENTRY / 2);
}

/* Adds the sums of a stage's warps, and over the pieces of a row in `y`. A thread has one row and
 * token of each tile. */
template <class WORK>
__device__ __forceinline__ void stream_finish(float &y, const stream_shape &s, WORK &work,
                                              const stream_stage &at, unsigned char *table, int set)
{
    int lane = threadIdx.x % 32, i = threadIdx.x / 32;
    for (int slot = 0; slot < at.tiles; slot++) {
        float part[STREAM_WARPS];
#pragma unroll
        for (int w = 0; w < STREAM_WARPS; w++)
            part[w] = w < at.warps ? stream_sums(table, set, slot * s.warps + w, i)[lane] : 0;
        y = at.piece ? y : 0;
#pragma unroll
        for (int w = 0; w < STREAM_WARPS; w++)
            y += part[w];
        if (at.piece == s.pieces - 1)
            work.finish(at.first + slot, lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2, y);
    }
}

__device__ __forceinline__ void stream_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(STREAM_WARPS * 32) : "memory");
}

template <class WORK>
__device__ __forceinline__ void stream_consume(const stream_shape &s, WORK &work,
                                               unsigned char *table, stream_barriers &bar)
{
    const unsigned char *ring = table + NF4_TABLE_BYTES;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
    int slot = warp / s.warps, group = warp % s.warps, row = slot * STREAM_TILE + g, have = -1;
    int codes = row * s.codes_pitch + group * STREAM_CODES;
    int scales =
        s.slots * STREAM_TILE * s.codes_pitch + row * s.scales_pitch + group * (int)STREAM_SCALES;
    int stages = stream_stages(s, work.end - work.begin);
    uint32_t x[4][8];
    float sum[4], y = 0;
    for (int i = 0; i < stages; i++) {
        stream_stage at = stream_stage_of(s, work.begin, work.end, i);
        int ring_at = i % s.stages;
        bool mine = slot < at.tiles && group < at.warps;
        int want = mine ? work.same(at.first + slot) * s.pieces + at.piece : have;
        if (want != have)
            stream_load_x(x, work.activations(at.first + slot, g), at.piece * s.warps + group);
        have = want;
        hopper_wait(&bar.full[ring_at], i / s.stages & 1);
        const unsigned char *stage = ring + ring_at * s.stage_bytes;
        if (mine) {
            stream_multiply(sum, s, table, stage + codes, stage + scales, x);
#pragma unroll
            for (int j = 0; j < 4; j++)
                stream_sums(table, i % 2, warp, j)[lane] = sum[j];
        }
        __syncwarp();
        if (lane == 0)
            hopper_arrive(&bar.empty[ring_at]);
        stream_sync(); /* the sums of this stage are there, those of the one before are used */
        if (warp < STREAM_FINISH / 32)
            stream_finish(y, s, work, at, table, i % 2);
    }
}

/* The body of a kernel. The copying warp fills the whole ring before the others join it, because
 * they wait for the kernel before this one first. */
template <class WORK>
__device__ __forceinline__ void stream_run(const stream_shape &s, WORK &work, unsigned char *smem,
                                           stream_barriers &bar)
{
    if (threadIdx.x >= STREAM_WARPS * 32) {
        if (threadIdx.x % 32 == 0) {
            for (int i = 0; i < s.stages; i++) {
                hopper_barrier_init(&bar.full[i], 1);
                hopper_barrier_init(&bar.empty[i], STREAM_WARPS);
            }
            hopper_barrier_publish();
        }
        __syncwarp();
        work.prepare();
        __syncwarp();
        work.ready();
        stream_fill_all(s, work, smem + NF4_TABLE_BYTES, bar);
        return;
    }
    nf4_table_fill<STREAM_WARPS * 32>(smem, s.values);
    work.wait();
    __syncthreads();
    work.ready();
    stream_consume(s, work, smem, bar);
}

#endif

#endif
