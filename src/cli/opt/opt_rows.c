/* opt_rows: all rows of options as one table. */
#include "cli/opt/opt_rows.h"

#include "cli/opt/opt.h"

#include <pesc/option_rows.h>

#include <stdlib.h>
#include <string.h>

#define STRUCT options
#define WHICH (pesc_option_struct) OPT_OWN

static const pesc_option command_rows[] = { COMMAND_ROWS(ROW, ROW) };
static const pesc_option common_rows[] = { COMMON_ROWS(ROW, ROW) };

const pesc_option *opt_rows(size_t *n)
{
    static pesc_option *all;
    static size_t count;
    if (!all) {
        size_t n_library, first = sizeof command_rows / sizeof *command_rows;
        const pesc_option *library = pesc_option_rows(&n_library);
        count = first + n_library + sizeof common_rows / sizeof *common_rows;
        all = malloc(count * sizeof *all);
        if (!all)
            abort(); /* nothing can be parsed, and nothing has begun */
        memcpy(all, command_rows, sizeof command_rows);
        memcpy(all + first, library, n_library * sizeof *all);
        memcpy(all + first + n_library, common_rows, sizeof common_rows);
    }
    if (n)
        *n = count;
    return all;
}
