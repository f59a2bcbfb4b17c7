/* cublaslt: products through cuBLASLt, for everything that no kernel of our own serves.
 *
 * cuBLASLt thinks in column-major matrices. A row-major matrix is a column-major one transposed, so
 * out [M,N] is computed as its transpose [N,M]: b is the first operand, a the second, and a table
 * says which of them is transposed. Products of bf16 are summed in f32, of f32 in f32 (not tf32).
 *
 * Of the algorithms that cuBLASLt has for a shape, its first heuristic proposal is taken. It is
 * asked for once for each shape, types and alignment, and kept. Nothing is timed, so the same
 * program on the same GPU takes the same algorithm, and a run repeats bit for bit.
 *
 * What cuBLASLt cannot read is converted in scratch first: NF4 is decoded, and where the operands
 * have two types b becomes a's. */
#include "backend/cuda/products.h"

#include "base/mem.h"

#include <cublasLt.h>
#include <string.h>

enum { WORKSPACE = 64 << 20, CHOICES = 1024 };

/* Everything the choice of an algorithm depends on. */
typedef struct shape {
    int64_t m, n, k; /* of the column-major product */
    int64_t ld_a, ld_b, ld_out;
    int32_t layout, in, out, bias, accumulate;
    int32_t align_a, align_b, align_out; /* bytes */
} shape;

typedef struct choice {
    shape of;
    bool used;
    cublasLtMatmulAlgo_t algo;
} choice;

struct cublaslt {
    cublasLtHandle_t lt;
    void *workspace;
    int used;
    choice choices[CHOICES]; /* a hash table with open addressing */
};

/* ---- opening ---- */

pesc_status cublaslt_open(cuda_device *d)
{
    struct cublaslt *p = mem_zalloc(1, sizeof *p);
    if (!p)
        return fail_nomem("opening the GPU", sizeof *p);
    d->cublaslt = p;
    if (cublasLtCreate(&p->lt) != CUBLAS_STATUS_SUCCESS)
        return fail(PESC_DEVICE, "device \"cuda:%d\": cuBLASLt does not start", d->index);
    return cuda_alloc(&d->base, WORKSPACE, &p->workspace);
}

void cublaslt_close(cuda_device *d)
{
    if (!d->cublaslt)
        return;
    if (d->cublaslt->lt)
        cublasLtDestroy(d->cublaslt->lt);
    cudaFree(d->cublaslt->workspace);
    mem_free(d->cublaslt);
}

/* ---- one product of two matrices of one type ---- */

/* Which of b (first) and a (second) is transposed. */
static const struct {
    cublasOperation_t b, a;
} transposed[] = {
    [MM_NT] = { CUBLAS_OP_T, CUBLAS_OP_N },
    [MM_NN] = { CUBLAS_OP_N, CUBLAS_OP_N },
    [MM_TN] = { CUBLAS_OP_N, CUBLAS_OP_T },
};

static cudaDataType_t type_of(dtype dt)
{
    ASSERT(dt == DT_F32 || dt == DT_BF16);
    return dt == DT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* cuBLASLt's description of a product; its structures are on the stack and need no closing. */
typedef struct lt_product {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, out;
} lt_product;

static cublasStatus_t layout_of(cublasLtMatrixLayoutOpaque_t *l, const tensor *t, int64_t ld)
{
    uint64_t rows = (uint64_t)tensor_cols(t), cols = (uint64_t)tensor_rows(t);
    return cublasLtMatrixLayoutInit(l, type_of(t->dt), rows, cols, ld ? ld : (int64_t)rows);
}

static cublasStatus_t describe(lt_product *p, const mm *a)
{
    cublasOperation_t op_b = transposed[a->layout].b, op_a = transposed[a->layout].a;
    cublasStatus_t s = cublasLtMatmulDescInit(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!s)
        s = cublasLtMatmulDescSetAttribute(&p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_b,
                                           sizeof op_b);
    if (!s)
        s = cublasLtMatmulDescSetAttribute(&p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_a,
                                           sizeof op_a);
    if (!s && a->bias.data) {
        cublasLtEpilogue_t e = CUBLASLT_EPILOGUE_BIAS;
        s = cublasLtMatmulDescSetAttribute(&p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e);
        if (!s)
            s = cublasLtMatmulDescSetAttribute(&p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                               &a->bias.data, sizeof a->bias.data);
    }
    if (!s)
        s = layout_of(&p->b, &a->b, a->b_ld);
    if (!s)
        s = layout_of(&p->a, &a->a, a->a_ld);
    return s ? s : layout_of(&p->out, &a->out, a->out_ld);
}

static int32_t alignment(const void *p)
{
    uintptr_t at = (uintptr_t)p | 256;
    return (int32_t)(at & -at);
}

static cublasStatus_t propose(struct cublaslt *ps, lt_product *p, const shape *z,
                              cublasLtMatmulAlgo_t *algo)
{
    cublasLtMatmulPreferenceOpaque_t want;
    cublasLtMatmulHeuristicResult_t got;
    size_t workspace = WORKSPACE;
    int found = 0;
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        uint32_t bytes;
    } least[] = {
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)z->align_b },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)z->align_a },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)z->align_out },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)z->align_out },
    };
    cublasStatus_t s = cublasLtMatmulPreferenceInit(&want);
    if (!s)
        s = cublasLtMatmulPreferenceSetAttribute(&want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &workspace, sizeof workspace);
    for (size_t i = 0; !s && i < sizeof least / sizeof *least; i++)
        s = cublasLtMatmulPreferenceSetAttribute(&want, least[i].what, &least[i].bytes,
                                                 sizeof least[i].bytes);
    if (!s)
        s = cublasLtMatmulAlgoGetHeuristic(ps->lt, &p->desc, &p->b, &p->a, &p->out, &p->out, &want,
                                           1, &got, &found);
    if (!s && !found)
        s = CUBLAS_STATUS_NOT_SUPPORTED;
    if (!s)
        *algo = got.algo;
    return s;
}

/* The entry of a shape in the table: its own, or the free one where it belongs. */
static choice *place_of(struct cublaslt *ps, const shape *z)
{
    const unsigned char *bytes = (const unsigned char *)z;
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *z; i++)
        h = (h ^ bytes[i]) * 1099511628211u;
    for (uint64_t at = h % CHOICES;; at = (at + 1) % CHOICES)
        if (!ps->choices[at].used || memcmp(&ps->choices[at].of, z, sizeof *z) == 0)
            return &ps->choices[at];
}

static cublasStatus_t algorithm_for(struct cublaslt *ps, lt_product *p, const mm *a,
                                    const cublasLtMatmulAlgo_t **algo)
{
    shape z;
    memset(&z, 0, sizeof z); /* padding too: shapes are compared as bytes */
    z.m = tensor_cols(&a->out);
    z.n = tensor_rows(&a->out);
    z.k = a->layout == MM_TN ? tensor_rows(&a->a) : tensor_cols(&a->a);
    z.ld_a = a->a_ld;
    z.ld_b = a->b_ld;
    z.ld_out = a->out_ld;
    z.layout = (int32_t)a->layout;
    z.in = (int32_t)a->a.dt;
    z.out = (int32_t)a->out.dt;
    z.bias = a->bias.data != NULL;
    z.accumulate = a->accumulate;
    z.align_a = alignment(a->a.data);
    z.align_b = alignment(a->b.data);
    z.align_out = alignment(a->out.data);
    if (ps->used > CHOICES / 2) { /* so many shapes: forget all and start over */
        memset(ps->choices, 0, sizeof ps->choices);
        ps->used = 0;
    }
    choice *c = place_of(ps, &z);
    if (!c->used) {
        cublasStatus_t s = propose(ps, p, &z, &c->algo);
        if (s)
            return s;
        c->of = z;
        c->used = true;
        ps->used++;
    }
    *algo = &c->algo;
    return CUBLAS_STATUS_SUCCESS;
}

static void multiply(cuda_device *d, const mm *a)
{
    struct cublaslt *ps = d->cublaslt;
    lt_product p;
    const cublasLtMatmulAlgo_t *algo = NULL;
    float beta = a->accumulate ? 1 : 0;
    cublasStatus_t s = describe(&p, a);
    if (!s)
        s = algorithm_for(ps, &p, a, &algo);
    if (!s)
        s = cublasLtMatmul(ps->lt, &p.desc, &a->scale, a->b.data, &p.b, a->a.data, &p.a, &beta,
                           a->out.data, &p.out, a->out.data, &p.out, algo, ps->workspace, WORKSPACE,
                           d->stream);
    if (s)
        cuda_fail_with(d, PESC_DEVICE, "matmul", cublasLtGetStatusString(s));
}

/* ---- operands that cuBLASLt cannot read ---- */

static size_t bytes_as(const tensor *t, dtype dt)
{
    return scratch_converted(tensor_count(t), dt);
}

/* A copy of t, which is whole, in type dt at *at; *at is moved to its end. */
static tensor converted(cuda_device *d, tensor t, dtype dt, unsigned char **at)
{
    tensor out = t;
    out.dt = dt;
    out.data = *at;
    *at += bytes_as(&t, dt);
    if (t.dt == DT_NF4)
        nf4_decode(d, out.data, dt, &t);
    else
        cuda_convert(&d->base, out, t);
    return out;
}

static bool is_whole(const tensor *t, int64_t ld)
{
    return ld == 0 || ld == tensor_cols(t);
}

/* One term. cuBLASLt has no product of f32 that writes bf16: that goes through an f32 copy of
 * out. */
void cublaslt_launch(cuda_device *d, const mm *a, int n)
{
    (void)n;
    mm x = *a;
    dtype in = a->a.dt;
    bool through_f32 = in == DT_F32 && a->out.dt == DT_BF16;
    dtype out = through_f32 ? DT_F32 : a->out.dt;
    bool other_b = a->b.dt != in, other_bias = a->bias.data && a->bias.dt != out;
    ASSERT((is_whole(&a->b, a->b_ld) || !other_b) &&
           (is_whole(&a->out, a->out_ld) || !through_f32));
    size_t bytes = (other_b ? bytes_as(&a->b, in) : 0) +
                   (through_f32 ? bytes_as(&a->out, out) : 0) +
                   (other_bias ? bytes_as(&a->bias, out) : 0);
    unsigned char *at = cuda_scratch(d, "matmul", bytes);
    if (bytes && !at)
        return;
    if (other_b)
        x.b = converted(d, a->b, in, &at);
    if (other_bias)
        x.bias = converted(d, a->bias, out, &at);
    if (through_f32) {
        x.out.data = at;
        x.out.dt = out;
        x.accumulate = false;
    }
    multiply(d, &x);
    if (through_f32 && a->accumulate)
        cuda_add(&d->base, a->out, x.out, 1);
    else if (through_f32)
        cuda_convert(&d->base, a->out, x.out);
}
