/* PESC_TEST_FILTER=topk* in the environment: a test program runs only the tests whose name matches.
 */
#include "support/check.h"

#include <stdlib.h>

__attribute__((constructor)) static void use_filter(void)
{
    cmocka_set_test_filter(getenv("PESC_TEST_FILTER"));
}
