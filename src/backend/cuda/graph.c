/* graph: repeated work as a CUDA graph, so that hundreds of small launches cost one.
 *
 * The first time a name is seen its ops are launched as usual: cuBLASLt chooses algorithms and the
 * runtime loads kernels, which must not happen while a stream is captured. The second time they are
 * captured; then, and every time after, the graph is launched. A graph holds the addresses it was
 * captured with. Those of tensors stay the same for a name, as backend.h demands; the address of
 * scratch is compared. */
#include "backend/cuda/cuda.h"

static void drop(cuda_recording *r)
{
    if (r->graph)
        cudaGraphExecDestroy(r->graph);
    *r = (cuda_recording){ 0 };
}

void cuda_recordings_close(cuda_device *d)
{
    for (int i = 0; i < CUDA_RECORDINGS; i++)
        drop(&d->recordings[i]);
}

/* The recording of a name, or the one longest unused, emptied. */
static cuda_recording *find(cuda_device *d, uint64_t name)
{
    cuda_recording *oldest = d->recordings;
    for (cuda_recording *r = d->recordings; r < d->recordings + CUDA_RECORDINGS; r++) {
        if (r->used && r->name == name)
            return r;
        oldest = r->used < oldest->used ? r : oldest;
    }
    drop(oldest);
    return oldest;
}

bool cuda_begin(device *dev, uint64_t name)
{
    cuda_device *d = cuda_select(dev);
    cuda_recording *r = find(d, name);
    bool first = !r->used || r->scratch != d->scratch;
    if (first)
        drop(r);
    r->name = name;
    r->used = ++d->now;
    r->scratch = d->scratch;
    if (r->graph) {
        cudaError_t e = cudaGraphLaunch(r->graph, d->stream);
        if (e != cudaSuccess)
            cuda_fail(d, e, "running a graph");
        return false;
    }
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    if (!first && cudaStreamBeginCapture(d->stream, mode) == cudaSuccess)
        d->recording = r;
    return true;
}

void cuda_end(device *dev)
{
    cuda_device *d = cuda_select(dev);
    cuda_recording *r = d->recording;
    cudaGraph_t graph = NULL;
    if (!r)
        return;
    d->recording = NULL;
    cudaError_t e = cudaStreamEndCapture(d->stream, &graph);
    if (e == cudaSuccess)
        e = cudaGraphInstantiate(&r->graph, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    if (e == cudaSuccess)
        e = cudaGraphLaunch(r->graph, d->stream);
    if (e != cudaSuccess)
        cuda_fail(d, e, "recording a graph");
}
