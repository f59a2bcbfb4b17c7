/* slower: how many times the seconds that a test allows its work: it is slower with a sanitizer,
 * and under an emulator, where PESC_TEST_EMULATED is in the environment (tests/arm.sh). */
#ifndef TESTS_SUPPORT_SLOWER_H
#define TESTS_SUPPORT_SLOWER_H

#include <stdlib.h>

static inline double slower(void)
{
#if defined(__SANITIZE_THREAD__)
    const double instrumented = 30;
#elif defined(__SANITIZE_ADDRESS__)
    const double instrumented = 5;
#else
    const double instrumented = 1;
#endif
    return getenv("PESC_TEST_EMULATED") ? 20 * instrumented : instrumented;
}

#endif
