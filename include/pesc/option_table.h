/* option_table: defaults of every struct of options, and the rows of options.h as data, for
 * programs that read options from text. Part of pesc.h. */
#ifndef PESC_OPTION_TABLE_H
#define PESC_OPTION_TABLE_H
#ifndef PESC_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

/* The structs of options: NAME, value, name, the last field they had in the first release. 10 is
 * the number that a program may give to rows of its own. */
#define PESC_OPTION_STRUCTS(X)                                                                     \
    X(LOAD, 0, load, whole_experts)                                                                \
    X(CRAFT, 1, craft, check)                                                                      \
    X(EXPORT, 2, export, check)                                                                    \
    X(SAMPLE, 3, sample, parse_special)                                                            \
    X(DATA, 4, data, seq_len)                                                                      \
    X(TRAIN, 5, train, lora)                                                                       \
    X(EVAL, 6, eval, chat_template)                                                                \
    X(ROUTES, 7, routes, seq_len)                                                                  \
    X(ESFT_SCORE, 8, esft_score, model)                                                            \
    X(ESFT_SELECT, 9, esft_select, budget)                                                         \
    X(BENCHMARK, 11, benchmark, output)                                                            \
    X(SERVE, 12, serve, log_json)                                                                  \
    X(COST, 13, cost, base)                                                                        \
    X(COMPARE, 14, compare, keep_reasoning)

typedef enum pesc_option_struct {
#define PESC_OPTION_STRUCT_ENUM(NAME, value, name, last) PESC_OPTIONS_##NAME = value,
    PESC_OPTION_STRUCTS(PESC_OPTION_STRUCT_ENUM)
#undef PESC_OPTION_STRUCT_ENUM
} pesc_option_struct;

/* Sets all of a struct that lies in its first `size` bytes to the defaults, and its size. */
void pesc_options_fill(pesc_option_struct which, void *options, size_t size);

/* pesc_load_options pesc_load_defaults(void), and so on for every struct of options. Start from it,
 * then assign fields. It stores the size of the struct that the caller was compiled with, so the
 * program keeps working with a later library: that uses the defaults for fields the caller does not
 * have. Functions that take options accept NULL for the defaults, check every field against its row
 * in options.h (PESC_USAGE: "lr: found -1, expected a number from 0 to 1e30"), and keep no pointer
 * to the struct. Texts and arrays that it points to must stay until the call returns, and those of
 * a pesc_data or a trainer until it is closed. */
#define PESC_OPTION_STRUCT_DEFAULTS(NAME, value, name, last)                                       \
    static inline pesc_##name##_options pesc_##name##_defaults(void)                               \
    {                                                                                              \
        pesc_##name##_options o;                                                                   \
        pesc_options_fill(PESC_OPTIONS_##NAME, &o, sizeof o);                                      \
        return o;                                                                                  \
    }
PESC_OPTION_STRUCTS(PESC_OPTION_STRUCT_DEFAULTS)
#undef PESC_OPTION_STRUCT_DEFAULTS

/* The rows of options.h as data, for programs that read options from text. */
typedef enum pesc_option_kind {
    PESC_OPTION_TEXT = 0,
    PESC_OPTION_CHAT = 1,
    PESC_OPTION_CHOICE = 2,
    PESC_OPTION_WORDS = 3,
    PESC_OPTION_INT = 4,
    PESC_OPTION_REAL = 5,
    PESC_OPTION_AUTO_INT = 6,
    PESC_OPTION_AUTO_REAL = 7,
    PESC_OPTION_BOOL = 8,
    PESC_OPTION_LIST = 9
} pesc_option_kind;

enum {
    PESC_OPTION_DECIDES = 1,
    PESC_OPTION_LENGTH = 2,
    PESC_OPTION_PATH = 4,
    PESC_OPTION_UNSAVED = 8,
    PESC_OPTION_GROUP = 8 /* flags >> PESC_OPTION_GROUP: the pesc_option_group */
};

/* The headings of a command's help, in their order. */
#define PESC_OPTION_GROUPS(X)                                                                      \
    X(INPUT, 0, "input")                                                                           \
    X(MODEL, 1, "model")                                                                           \
    X(DATA, 2, "data")                                                                             \
    X(METHOD, 3, "method")                                                                         \
    X(SCHEDULE, 4, "schedule and optimiser")                                                       \
    X(SAMPLING, 5, "sampling")                                                                     \
    X(TASKS, 6, "evaluation")                                                                      \
    X(SERVER, 7, "server")                                                                         \
    X(MEASURE, 8, "measurement")                                                                   \
    X(MACHINE, 9, "device, memory and processes")                                                  \
    X(OUTPUT, 10, "output")                                                                        \
    X(COMMAND, 11, "command")
typedef enum pesc_option_group {
#define PESC_OPTION_GROUP_ENUM(NAME, value, title) PESC_OPTION_##NAME = value,
    PESC_OPTION_GROUPS(PESC_OPTION_GROUP_ENUM)
#undef PESC_OPTION_GROUP_ENUM
        PESC_OPTION_N_GROUPS
} pesc_option_group;

typedef struct pesc_option {
    const char *key;
    pesc_option_kind kind;
    pesc_option_struct of;
    size_t at, count_at;  /* offsets in the struct: of the field; of a list, of its count */
    const char *fallback; /* the default as text; NULL: none */
    unsigned flags;
    const char *commands; /* "train plan init", "*" or "" */
    const char *help;
    const char *values; /* of CHOICE: "a|b"; else what the help calls the value, NULL for BOOL */
    double min, max;    /* of numbers */
} pesc_option;

/* All rows, in the order of options.h but with those of PESC_LOAD_OPTIONS at the end. Valid as long
 * as the library. */
const pesc_option *pesc_option_rows(size_t *n);

/* Sets the row's field in its struct from what a user wrote. A text is borrowed, not copied.
 * `where` begins the sentence of a failure ("run.yaml:3: lr"); NULL: the key. Not for lists: their
 * array belongs to the caller. PESC_USAGE: not a value of this row; the field is unchanged. */
pesc_status pesc_option_set(const pesc_option *row, void *options, const char *text,
                            const char *where);

/* Writes the row's value as a user would, with a NUL, into text[cap]; nothing for an absent text
 * and for lists. Returns the length that the whole value needs. */
size_t pesc_option_get(const pesc_option *row, const void *options, char *text, size_t cap);

#endif
