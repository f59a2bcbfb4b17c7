#include "ops/run.h"

int main(void)
{
    int failed = run_cpu() + run_grad() + run_properties();
    return failed > 125 ? 125 : failed;
}
