/* ops: the table of ops of one instruction set. */
#include "backend/cpu/ops/ops.h"

const ops OP(ops) = {
#define ROW_PLAIN(name) .name = cpu_##name,
#define ROW_OP(name) .name = OP(name),
    CPU_MEMORY_MAP(ROW_PLAIN) CPU_PRODUCT_MAP(ROW_PLAIN) CPU_OP_MAP(ROW_OP)
#undef ROW_PLAIN
#undef ROW_OP
};
