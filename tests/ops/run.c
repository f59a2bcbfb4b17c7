/* run [DEVICE]: the op tests of the CPU, or of a GPU against it. */
#include "ops/run.h"

int main(int argc, char **argv)
{
    int failed =
        argc > 1 ? run_cuda(argv[1]) : run_coverage() + run_cpu() + run_grad() + run_properties();
    return failed > 125 ? 125 : failed;
}
