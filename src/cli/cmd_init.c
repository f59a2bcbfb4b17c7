/* cmd_init: a commented run file for `pesc train -c`.
 *
 * The file has a line for every option of train that a file may hold, in the order of the table of
 * options, with its help text. Options that the recipe or the command line sets are keys; the
 * others are commented out, with the value that method and preset give them. */
#include "cli/command.h"
#include "cli/opt/tune.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEY_WIDTH = 33, LINE_WIDTH = 98, MAX_SETTINGS = 4 };

typedef struct setting {
    const char *name, *value;
} setting;

static const struct recipe {
    const char *name, *about, *before; /* before: the command that makes its model, or NULL */
    setting settings[MAX_SETTINGS];
} recipes[] = {
    { "pesc",
      "adapters as experts, their routers, and LoRA on all linears",
      "pesc craft DENSE -o SPARSE",
      { { "method", "pesc" } } },
    { "qlora-pesc",
      "adapters as experts, their routers, and LoRA, on 4-bit weights",
      "pesc craft DENSE -o SPARSE",
      { { "method", "pesc" }, { "base_dtype", "nf4" } } },
    { "qlora", "LoRA on 4-bit weights", NULL, { { "method", "qlora" } } },
    { "lora", "LoRA", NULL, { { "method", "lora" } } },
    { "full", "every weight", NULL, { { "method", "full" }, { "lr", "2e-5" } } },
    { "upcycle",
      "full experts, their routers, and LoRA on the rest",
      "pesc craft DENSE -o SPARSE --kind upcycle",
      { { "method", "upcycle" }, { "lr", "2e-5" } } },
    { "molora",
      "a mixture of LoRA on a dense model",
      NULL,
      { { "method", "molora" }, { "experts", "8" }, { "top_k", "2" } } },
    { "esft",
      "the experts of a mixture that a task uses, with the settings of ESFT's paper",
      "pesc esft score MODEL --data FILE -o DIR, pesc esft select DIR -o expert_cfg.json",
      { { "method", "esft" }, { "preset", "esft" }, { "experts_config", "expert_cfg.json" } } },
};
enum { N_RECIPES = sizeof recipes / sizeof *recipes };

/* Placeholders for keys that only the user knows. */
static const setting placeholders[] = {
    { "model", "path/to/model" },
    { "output", "run" },
    { "data", "train.jsonl" },
};

/* Keys that most runs set; they are never commented out. */
static const char *const shown[] = { "seq_len", "epochs", "batch", "lr" };

static const char *placeholder(const char *name)
{
    for (size_t i = 0; i < sizeof placeholders / sizeof *placeholders; i++)
        if (strcmp(placeholders[i].name, name) == 0)
            return placeholders[i].value;
    return NULL;
}

static bool is_shown(const char *name)
{
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (strcmp(shown[i], name) == 0)
            return true;
    return false;
}

void init_recipes(void)
{
    for (int i = 0; i < N_RECIPES; i++)
        printf("%s ", recipes[i].name);
}

static pesc_status find_recipe(const char *name, const struct recipe **out)
{
    const char *names[N_RECIPES];
    char list[128] = "";
    size_t at = 0;
    for (size_t i = 0; i < N_RECIPES; i++) {
        names[i] = recipes[i].name;
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
        if (strcmp(names[i], name) == 0) {
            *out = &recipes[i];
            return PESC_OK;
        }
    }
    const char *near = opt_nearest(name, names, N_RECIPES);
    return near ? out_fail(PESC_USAGE, "init: there is no recipe \"%s\"; did you mean %s?", name,
                           near)
                : out_fail(PESC_USAGE, "init: there is no recipe \"%s\", expected one of %s", name,
                           list);
}

/* ---- values ---- */

/* A YAML scalar: without quotes if it can only be read as text. */
static void write_scalar(FILE *f, const char *text)
{
    bool plain = text[0] != '\0' && text[0] != '-' && strcmp(text, "null") != 0;
    for (const char *p = text; *p; p++)
        plain = plain && (isalnum((unsigned char)*p) || strchr("_./-", *p));
    if (plain) {
        fputs(text, f);
        return;
    }
    fputc('"', f);
    for (const char *p = text; *p; p++) {
        if (iscntrl((unsigned char)*p))
            fprintf(f, "\\x%02X", (unsigned char)*p);
        else
            fprintf(f, "%s%c", *p == '"' || *p == '\\' ? "\\" : "", *p);
    }
    fputc('"', f);
}

static void write_list(FILE *f, const char *const *items, size_t n)
{
    fputc('[', f);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ", " : "", f);
        write_scalar(f, items[i]);
    }
    fputc(']', f);
}

/* The value of the option, or `otherwise` where it has none. */
static void write_value(FILE *f, options *o, const pesc_option *r, const char *otherwise)
{
    const char *base = opt_struct(o, r);
    if (r->kind == PESC_OPTION_LIST) {
        const char *const *items = *(const char *const *const *)(const void *)(base + r->at);
        size_t n = *(const size_t *)(const void *)(base + r->count_at);
        if (n > 0)
            write_list(f, items, n);
        else
            fputs(otherwise, f);
    } else if (r->kind <= PESC_OPTION_WORDS) { /* the kinds of text */
        const char *text = *(const char *const *)(const void *)(base + r->at);
        if (text)
            write_scalar(f, text);
        else
            fputs(otherwise, f);
    } else {
        char number[64];
        pesc_option_get(r, base, number, sizeof number);
        fputs(number, f);
    }
}

/* ---- lines ---- */

/* The length of what cannot be divided at the beginning of the text: a word, or of a list of values
 * longer than a line as many values as fit. */
static int piece_length(const char *text)
{
    int word = (int)strcspn(text, " "), n = LINE_WIDTH - KEY_WIDTH - 2;
    if (word <= n)
        return word;
    while (n > 0 && text[n - 1] != '|')
        n--;
    return n ? n : word;
}

/* Words after "# ", from column KEY_WIDTH on; the first line is written up to column `at`. */
static void write_comment(FILE *f, const char *text, int at)
{
    int column = LINE_WIDTH; /* the first word begins a line */
    bool first = true;
    while (*text) {
        int n = piece_length(text);
        if (column + 1 + n > LINE_WIDTH) {
            int gap = first ? KEY_WIDTH - at : KEY_WIDTH;
            fprintf(f, "%s%*s#", first ? "" : "\n", gap > 1 ? gap : 1, "");
            column = (first && at >= KEY_WIDTH ? at : KEY_WIDTH) + 1;
            first = false;
        }
        fprintf(f, " %.*s", n, text);
        column += n + 1;
        text += n + (text[n] == ' ');
    }
    fputc('\n', f);
}

static void write_line(FILE *f, options *o, const pesc_option *r)
{
    const char *fill = placeholder(r->key) ? placeholder(r->key) : opt_value(r);
    bool is_key = o->given[opt_index(r)] || placeholder(r->key) || is_shown(r->key);
    bool choice = r->kind == PESC_OPTION_CHOICE;
    char help[512];
    long start = ftell(f);
    fprintf(f, "%s%s: ", is_key ? "" : "#", r->key);
    write_value(f, o, r, fill);
    snprintf(help, sizeof help, "%s%s%s%s", r->help, choice ? " (" : "", choice ? r->values : "",
             choice ? ")" : "");
    write_comment(f, help, (int)(ftell(f) - start));
}

/* Options of train that are not options of every command: config, json and help concern the
 * command, not the run. */
static bool is_of_run(const pesc_option *r)
{
    const command *train;
    return command_find("train", &train) == PESC_OK && opt_find(train, r->key) &&
           r->flags >> PESC_OPTION_GROUP != PESC_OPTION_COMMAND;
}

static void write_file(FILE *f, options *o, const struct recipe *recipe)
{
    const char *name = o->file ? o->file : "run.yaml";
    fprintf(f, "# %s: %s.\n", recipe->name, recipe->about);
    if (recipe->before)
        fprintf(f, "# First: %s\n", recipe->before);
    fprintf(f,
            "# Then: pesc plan -c %s (memory and disk), pesc train -c %s. Flags win over this "
            "file.\n"
            "# Lines that begin with # have their defaults, or placeholders where there is none "
            "(FILE, a|b):\n"
            "# remove the # to change one.\n\n",
            name, name);
    for (const pesc_option *r = NULL; (r = opt_next(o->cmd, r));)
        if (is_of_run(r))
            write_line(f, o, r);
}

/* ---- the command ---- */

/* Sets the options of the recipe that the user did not give, then the defaults of method and
 * preset. */
static pesc_status complete(options *o, const struct recipe *recipe)
{
    pesc_train_options p;
    for (int i = 0; i < MAX_SETTINGS && recipe->settings[i].name; i++) {
        const pesc_option *r = opt_find(o->cmd, recipe->settings[i].name);
        if (!o->given[opt_index(r)])
            TRY(opt_set(o, r, recipe->settings[i].value, r->key));
    }
    TRY(tune_options(o, &p));
    o->train = p;
    return PESC_OK;
}

static pesc_status save(const char *path, const char *text, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST)
        return out_fail(PESC_USAGE, "%s: exists already; give another -o, or remove it", path);
    if (fd < 0)
        return out_fail(PESC_DISK, "%s: cannot be written: %s", path, strerror(errno));
    FILE *f = fdopen(fd, "w");
    bool written = f && fwrite(text, 1, n, f) == n;
    written = (f ? fclose(f) : close(fd)) == 0 && written;
    if (written)
        return PESC_OK;
    int why = errno;
    unlink(path);
    return out_fail(PESC_DISK, "%s: cannot be written: %s", path, strerror(why));
}

static pesc_status deliver(const options *o, const char *recipe, const char *text, size_t n)
{
    if (o->file)
        TRY(save(o->file, text, n));
    if (o->json) {
        out_begin(NULL, '{');
        out_text("recipe", recipe);
        if (o->file)
            out_text("path", o->file);
        out_string("text", text, n);
        out_end();
    } else if (!o->file) {
        out_write(text, n);
    }
    return PESC_OK;
}

pesc_status cmd_init(const options *o)
{
    options all = *o; /* its lists belong to `o` */
    const struct recipe *recipe = NULL;
    char *text = NULL;
    size_t n = 0;
    bool esft = o->preset && strcmp(o->preset, "esft") == 0 && !opt_given(o, "recipe");
    TRY(find_recipe(esft ? "esft" : o->recipe, &recipe));
    TRY(complete(&all, recipe));
    FILE *f = open_memstream(&text, &n);
    if (f)
        write_file(f, &all, recipe);
    bool whole = f && !ferror(f) && fclose(f) == 0;
    pesc_status st = whole ? deliver(o, recipe->name, text, n) : out_nomem("the run file");
    free(text);
    return st;
}
