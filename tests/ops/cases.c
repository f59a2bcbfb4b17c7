#include "ops/cases.h"

#include <string.h>

const op_test *const op_tests[] = {
#define OP_TEST_ROW(name) &test_##name,
    OP_TEST_MAP(OP_TEST_ROW)
};
const int n_op_tests = sizeof op_tests / sizeof *op_tests;

double round_to(dtype dt, double x)
{
    float f = (float)x;
    uint32_t u;
    if (dt == DT_I32 || dt == DT_U8)
        return x;
    memcpy(&u, &f, 4);
    if (dt == DT_BF16 && x == x)
        u = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;
    memcpy(&f, &u, 4);
    return f;
}
