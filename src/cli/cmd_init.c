/* cmd_init: a commented run file for `pesc train -c`.
 *
 * The file has a line for every option of train that a file may hold, in the order of the table of
 * options, with its help text. What the recipe or the command line says is a key; what a run would
 * do anyway stands behind a #, with the value that method and preset give it. */
#include "cli/command.h"
#include "cli/num.h"
#include "cli/tune.h"

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
    const char *name, *about, *before; /* before: what makes its model, or NULL */
    setting settings[MAX_SETTINGS];
} recipes[] = {
    { "pesc",
      "adapters as experts, their routers, and LoRA on all linears",
      "pesc craft DENSE -o SPARSE",
      { { "method", "pesc" } } },
    { "qlora-pesc",
      "adapters as experts, their routers, and LoRA, on 4-bit weights",
      "pesc craft DENSE -o SPARSE",
      { { "method", "pesc" }, { "base-dtype", "nf4" } } },
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
      { { "method", "molora" }, { "experts", "8" }, { "top-k", "2" } } },
    { "esft",
      "the experts of a mixture that a task uses, with the settings of ESFT's paper",
      "pesc esft score MODEL --data FILE -o DIR, pesc esft select DIR -o expert_cfg.json",
      { { "method", "esft" }, { "preset", "esft" }, { "experts-config", "expert_cfg.json" } } },
};
enum { N_RECIPES = sizeof recipes / sizeof *recipes };

/* Keys that nobody else can know; these stand in for them. */
static const setting yours[] = {
    { "model", "path/to/model" },
    { "output", "run" },
    { "data", "train.jsonl" },
};

/* Keys worth a look in every run. */
static const char *const shown[] = { "seq-len", "epochs", "batch", "lr" };

static const char *stand_in(const char *name)
{
    for (size_t i = 0; i < sizeof yours / sizeof *yours; i++)
        if (strcmp(yours[i].name, name) == 0)
            return yours[i].value;
    return NULL;
}

static bool is_shown(const char *name)
{
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (strcmp(shown[i], name) == 0)
            return true;
    return false;
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

/* A YAML scalar: plain where nothing in it could be read as anything but text. */
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

static void write_list(FILE *f, const opt_list *l)
{
    fputc('[', f);
    for (size_t i = 0; i < l->n; i++) {
        fputs(i ? ", " : "", f);
        write_scalar(f, l->items[i]);
    }
    fputc(']', f);
}

/* As the table writes it where it is the table's default: 2e-4, not 0.0002. */
static void write_real(FILE *f, const opt_row *r, double v)
{
    double usual;
    if (r->fallback && num_real(r->fallback, r->min, r->max, &usual) && usual == v)
        fputs(r->fallback, f);
    else
        fprintf(f, "%.15g", v);
}

/* What the option is; where nothing was said of it, `otherwise`. A number below its range says
 * nothing: the method decides. */
static void write_value(FILE *f, const options *o, const opt_row *r, const char *otherwise)
{
    const char *field = (const char *)o + r->field, *text;
    const opt_list *list;
    switch (r->type) {
    case OPT_BOOL:
        fputs(*(const bool *)field ? "true" : "false", f);
        break;
    case OPT_INT:
        if (*(const int64_t *)field < (int64_t)r->min)
            fputs(otherwise, f);
        else
            fprintf(f, "%lld", (long long)*(const int64_t *)field);
        break;
    case OPT_REAL:
        if (*(const double *)field < r->min)
            fputs(otherwise, f);
        else
            write_real(f, r, *(const double *)field);
        break;
    case OPT_LIST:
        list = (const opt_list *)field;
        if (list->n > 0)
            write_list(f, list);
        else
            fputs(otherwise, f);
        break;
    case OPT_TEXT:
    case OPT_WORDS:
    case OPT_CHOICE:
        text = *(const char *const *)field;
        if (text)
            write_scalar(f, text);
        else
            fputs(otherwise, f);
    }
}

/* ---- lines ---- */

/* Words behind "# ", from column KEY_WIDTH on; the first line is there already up to `at`. */
static void write_comment(FILE *f, const char *text, int at)
{
    int column = LINE_WIDTH; /* the first word begins a line */
    bool first = true;
    while (*text) {
        int n = (int)strcspn(text, " ");
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

static void write_line(FILE *f, const options *o, const opt_row *r)
{
    const char *fill = stand_in(r->name) ? stand_in(r->name) : r->fallback ? r->fallback : r->value;
    bool is_key = o->given[r - opt_rows] || stand_in(r->name) || is_shown(r->name);
    bool choice = r->type == OPT_CHOICE;
    char help[512];
    long start = ftell(f);
    fputs(is_key ? "" : "#", f);
    for (const char *p = r->name; *p; p++)
        fputc(*p == '-' ? '_' : *p, f);
    fputs(": ", f);
    write_value(f, o, r, fill);
    snprintf(help, sizeof help, "%s%s%s%s", r->help, choice ? " (" : "", choice ? r->value : "",
             choice ? ")" : "");
    write_comment(f, help, (int)(ftell(f) - start));
}

/* What even `pesc version` takes is about the command, not about the run. */
static bool is_of_run(const opt_row *train)
{
    return opt_applies(train, &commands[CMD_TRAIN]) && !opt_applies(train, &commands[CMD_VERSION]);
}

static void write_file(FILE *f, const options *o, const struct recipe *recipe)
{
    const char *name = o->file ? o->file : "run.yaml";
    fprintf(f, "# %s: %s.\n", recipe->name, recipe->about);
    if (recipe->before)
        fprintf(f, "# First: %s\n", recipe->before);
    fprintf(f,
            "# Then: pesc plan -c %s (memory and disk), pesc train -c %s. Flags win over this "
            "file.\n"
            "# A line behind # says what is so anyway: take the # away to change it.\n\n",
            name, name);
    for (size_t i = 0; i < n_opt_rows; i++) {
        const opt_row *own =
            is_of_run(&opt_rows[i]) ? opt_find(o->cmd, opt_rows[i].name, '-') : NULL;
        if (own)
            write_line(f, o, own);
    }
}

/* ---- the command ---- */

/* The recipe where nothing else was said, then what method and preset make of the rest. */
static pesc_status complete(options *o, const struct recipe *recipe)
{
    pesc_train_options p;
    for (int i = 0; i < MAX_SETTINGS && recipe->settings[i].name; i++) {
        const opt_row *r = opt_find(o->cmd, recipe->settings[i].name, '-');
        if (!o->given[r - opt_rows])
            TRY(opt_set(o, r, recipe->settings[i].value, r->name));
    }
    TRY(tune_options(o, &p));
    tune_fill(o, &p);
    return PESC_OK;
}

static pesc_status save(const char *path, const char *text, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST)
        return out_fail(PESC_USAGE, "%s: is there already; give another -o, or remove it", path);
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
    options all = *o; /* its lists stay those of `o` */
    const struct recipe *recipe = NULL;
    char *text = NULL;
    size_t n = 0;
    TRY(find_recipe(o->recipe, &recipe));
    TRY(complete(&all, recipe));
    FILE *f = open_memstream(&text, &n);
    if (f)
        write_file(f, &all, recipe);
    bool whole = f && !ferror(f) && fclose(f) == 0;
    pesc_status st = whole ? deliver(o, recipe->name, text, n) : out_nomem("the run file");
    free(text);
    return st;
}
