/* run: the runners over the tables of cases. Each returns how many tests failed. */
#ifndef PESC_TESTS_OPS_RUN_H
#define PESC_TESTS_OPS_RUN_H

int run_coverage(void);
int run_cpu(void);
int run_grad(void);
int run_properties(void);
int run_cuda(const char *spec); /* "cuda:0"; says SKIPPED where there is none */

#endif
