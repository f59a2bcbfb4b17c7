/* The rows of <pesc/options.h> as one table. */
#include "base/options.h"

#include <pesc/option_rows.h>

/* clang-format off */
static const pesc_option rows[] = {
#define WHICH PESC_OPTIONS_CRAFT
#define STRUCT pesc_craft_options
    PESC_CRAFT_OPTIONS(ROW, ROW)
#undef STRUCT
#undef WHICH
#define WHICH PESC_OPTIONS_EXPORT
#define STRUCT pesc_export_options
    PESC_EXPORT_OPTIONS(ROW, ROW)
#undef STRUCT
#undef WHICH
#define WHICH PESC_OPTIONS_SAMPLE
#define STRUCT pesc_sample_options
    PESC_SAMPLE_OPTIONS(ROW, ROW)
#undef STRUCT
#undef WHICH
#define WHICH PESC_OPTIONS_DATA
#define STRUCT pesc_data_options
    PESC_DATA_OPTIONS(ROW, ROW)
#undef STRUCT
#undef WHICH
#define WHICH PESC_OPTIONS_TRAIN
#define STRUCT pesc_train_options
    PESC_TRAIN_OPTIONS(ROW, ROW)
#undef STRUCT
#undef WHICH
#define WHICH PESC_OPTIONS_EVAL
#define STRUCT pesc_eval_options
    PESC_EVAL_OPTIONS(ROW, ROW)
#undef STRUCT
#undef WHICH
#define WHICH PESC_OPTIONS_BENCHMARK
#define STRUCT pesc_benchmark_options
    PESC_BENCHMARK_OPTIONS(ROW, ROW)
#undef STRUCT
#undef WHICH
#define WHICH PESC_OPTIONS_SERVE
#define STRUCT pesc_serve_options
    PESC_SERVE_OPTIONS(ROW, ROW)
#undef STRUCT
#undef WHICH
#define WHICH PESC_OPTIONS_ROUTES
#define STRUCT pesc_routes_options
    PESC_ROUTES_OPTIONS(ROW, ROW)
#undef STRUCT
#undef WHICH
#define WHICH PESC_OPTIONS_COMPARE
#define STRUCT pesc_compare_options
    PESC_COMPARE_OPTIONS(ROW, ROW)
#undef STRUCT
#undef WHICH
#define WHICH PESC_OPTIONS_COST
#define STRUCT pesc_cost_options
    PESC_COST_OPTIONS(ROW, ROW)
#undef STRUCT
#undef WHICH
#define WHICH PESC_OPTIONS_ESFT_SCORE
#define STRUCT pesc_esft_score_options
    PESC_ESFT_SCORE_OPTIONS(ROW, ROW)
#undef STRUCT
#undef WHICH
#define WHICH PESC_OPTIONS_ESFT_SELECT
#define STRUCT pesc_esft_select_options
    PESC_ESFT_SELECT_OPTIONS(ROW, ROW)
#undef STRUCT
#undef WHICH
#define WHICH PESC_OPTIONS_LOAD
#define STRUCT pesc_load_options
    PESC_LOAD_OPTIONS(ROW, ROW)
#undef STRUCT
#undef WHICH
};
/* clang-format on */
enum { N_ROWS = sizeof rows / sizeof *rows };

const pesc_option *pesc_option_rows(size_t *n)
{
    if (n)
        *n = N_ROWS;
    return rows;
}
