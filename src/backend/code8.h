#ifndef PESC_BACKEND_CODE8_H
#define PESC_BACKEND_CODE8_H

#include <stdint.h>

enum { CODE8_BLOCK = 256 }; /* numbers that share a scale */

typedef enum code8_kind { CODE8_SIGNED, CODE8_UNSIGNED } code8_kind;

const float *code8_map(code8_kind kind); /* 256 values, ascending; the last is 1 */

#endif
