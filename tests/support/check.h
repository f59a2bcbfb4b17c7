/* check: cmocka with its prerequisites, and the two things every test says. */
#ifndef TESTS_SUPPORT_CHECK_H
#define TESTS_SUPPORT_CHECK_H

#include "pesc/pesc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* cmocka's fail() would hide the one of base/status.h. */
#undef fail
#undef fail_msg
#define fail_msg(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

/* The call succeeds; else the test fails with pesc's own sentence. */
#define must(expr)                                                                                 \
    do {                                                                                           \
        if ((expr) != PESC_OK)                                                                     \
            fail_msg("%s: %s", #expr, pesc_last_error());                                          \
    } while (0)

/* The call fails with this status and a sentence that holds `part`. */
#define must_fail(expr, status, part)                                                              \
    do {                                                                                           \
        pesc_status got_ = (expr);                                                                 \
        if (got_ != (status) || !strstr(pesc_last_error(), (part)))                                \
            fail_msg("%s: got \"%s\": \"%s\", expected \"%s\" with \"%s\"", #expr,                 \
                     pesc_status_text(got_), pesc_last_error(), pesc_status_text(status), (part)); \
    } while (0)

#endif
