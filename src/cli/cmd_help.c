/* cmd_help: the table of commands and the table of options, printed for people, for man(1), as
 * reference pages and as a completion script; `pesc help` and `pesc version`. */
#include "cli/command.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int code;
    const char *text;
} exits[] = {
    { 0, "done" },
    { 1, "the run failed" },
    { 2, "usage or configuration" },
    { 3, "a bad input file" },
    { 4, "missing resource: disk, memory, device, library" },
    { 5, "numeric failure: the numbers are not finite" },
    { 75, "stopped by a signal after saving" },
};
enum { N_EXITS = sizeof exits / sizeof *exits };

void help_overview(void)
{
    puts("pesc " PESC_VERSION ": dense language models into sparse experts: tune, test, explain, "
         "run them");
    const char *job = "";
    for (const command *c = commands; c->job; c++) { /* help, without a job, is in the last line */
        printf("  %-7spesc %-12s%s\n", strcmp(c->job, job) == 0 ? "" : c->job, c->name, c->summary);
        job = c->job;
    }
    puts("Try: pesc demo. pesc help COMMAND explains one; a MODEL is a directory, a run or a .gguf "
         "file.");
}

static void print_indented(const char *lines, const char *indent)
{
    for (bool start = true; *lines; lines++) {
        if (start)
            fputs(indent, stdout);
        putchar(*lines);
        start = *lines == '\n';
    }
}

/* Words of the text on lines of at most 98 columns; the first begins at column `at`. */
static void print_wrapped(const char *text, int at, int indent)
{
    int column = at;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (column > indent && column + 1 + n > 98) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        fwrite(text, 1, (size_t)n, stdout);
        column += n;
        text += n + (text[n] == ' ');
    }
    putchar('\n');
}

static void print_row(const command *c, const pesc_option *r, bool argument)
{
    enum { INDENT = 34 };
    char left[96], help[512], letter[8] = "    ";
    const char *value = opt_value(r);
    opt_name flag;
    if (opt_letter(r, c))
        snprintf(letter, sizeof letter, "-%c, ", opt_letter(r, c));
    if (argument)
        snprintf(left, sizeof left, "%s", value);
    else
        snprintf(left, sizeof left, "%s--%s%s%s", letter, opt_flag(flag, r->key), value ? " " : "",
                 value ? value : "");
    bool shown = r->fallback && strcmp(r->fallback, "false") != 0;
    snprintf(help, sizeof help, "%s%s%s%s", r->help, shown ? " (default " : "",
             shown ? r->fallback : "", shown ? ")" : "");
    int n = printf("  %-*s", INDENT - 2, left);
    if (strlen(left) >= INDENT - 2)
        n = printf("\n%*s", INDENT, "") - 1;
    print_wrapped(help, n, n);
}

static void print_arguments(const command *c)
{
    for (const pesc_option *r = NULL; (r = opt_next(c, r));)
        if (command_is_argument(c, r->key))
            print_row(c, r, true);
}

/* The options of a group that are no positional arguments: start with NULL; NULL after the last. */
static const pesc_option *next_option(const command *c, const pesc_option *row,
                                      pesc_option_group group)
{
    do
        row = opt_next(c, row);
    while (row && (row->flags >> PESC_OPTION_GROUP != group || command_is_argument(c, row->key)));
    return row;
}

static void print_group(const command *c, pesc_option_group group)
{
    const pesc_option *r = next_option(c, NULL, group);
    if (r)
        printf("\n %s\n", opt_group_title(group));
    for (; r; r = next_option(c, r, group))
        print_row(c, r, false);
}

void help_command(const command *c)
{
    printf("pesc %s: %s\n\nusage: pesc %s%s%s [options]\n\n", c->name, c->summary, c->name,
           c->synopsis[0] ? " " : "", c->synopsis);
    print_wrapped(c->about, 0, 0);
    if (c->keys[0]) {
        puts("\narguments");
        print_arguments(c);
    }
    puts("\noptions (booleans: --json or --json true, --no-json or --json false)");
    for (int g = 0; g < PESC_OPTION_N_GROUPS; g++)
        print_group(c, (pesc_option_group)g);
    puts("\nexamples");
    print_indented(c->examples, "  ");
    puts("\nexit codes");
    for (size_t i = 0; i < N_EXITS; i++)
        printf("  %-4d%s\n", exits[i].code, exits[i].text);
}

/* ---- man(1) ---- */

/* roff: a backslash and a dash are written with a backslash, a leading dot or quote is escaped. */
static void man_text(const char *text)
{
    bool start = true;
    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\''))
            fputs("\\&", stdout);
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else
            putchar(*text);
        start = *text == '\n';
    }
}

static void man_option(const command *c, const pesc_option *r)
{
    const char *value = opt_value(r);
    opt_name flag;
    puts(".TP");
    if (command_is_argument(c, r->key)) {
        printf(".I %s\n", value);
    } else {
        fputs("\\fB", stdout);
        if (opt_letter(r, c))
            printf("\\-%c\\fR, \\fB", opt_letter(r, c));
        man_text("--");
        man_text(opt_flag(flag, r->key));
        fputs("\\fR", stdout);
        if (value)
            printf(" \\fI%s\\fR", value);
        putchar('\n');
    }
    man_text(r->help);
    if (r->fallback) {
        fputs(" (default ", stdout);
        man_text(r->fallback);
        putchar(')');
    }
    putchar('\n');
}

static void man_command(const command *c)
{
    printf(".SS \"pesc %s %s\"\n", c->name, c->synopsis);
    man_text(c->about);
    putchar('\n');
    for (const pesc_option *r = NULL; (r = opt_next(c, r));)
        if (command_is_argument(c, r->key))
            man_option(c, r);
    for (int g = 0; g < PESC_OPTION_N_GROUPS; g++) {
        const pesc_option *r = next_option(c, NULL, (pesc_option_group)g);
        if (r)
            printf(".PP\n.I %s\n", opt_group_title((pesc_option_group)g));
        for (; r; r = next_option(c, r, (pesc_option_group)g))
            man_option(c, r);
    }
    puts(".PP\n.nf");
    man_text(c->examples);
    puts(".fi");
}

static void print_man(void)
{
    puts(".TH PESC 1 \"\" \"pesc " PESC_VERSION "\" \"User Commands\"\n.SH NAME\n"
         "pesc \\- load, tokenize and run language models\n.SH SYNOPSIS\n"
         ".B pesc\n.I COMMAND\n[arguments] [options]\n.SH DESCRIPTION\n"
         "Options are written \\fB\\-\\-name value\\fR or \\fB\\-\\-name=value\\fR, booleans\n"
         "\\fB\\-\\-json\\fR, \\fB\\-\\-no\\-json\\fR or \\fB\\-\\-json false\\fR; in a file\n"
         "(\\fB\\-c\\fR) the same options are keys with _ for \\-.\n"
         "Results go to standard output, progress and errors to standard error.\n.SH COMMANDS");
    for (const command *c = commands; c->name; c++)
        man_command(c);
    puts(".SH EXIT STATUS");
    for (size_t i = 0; i < N_EXITS; i++)
        printf(".TP\n.B %d\n%s\n", exits[i].code, exits[i].text);
}

/* ---- Markdown ---- */

/* A cell of a table: | would end it. */
static void markdown_cell(const char *text)
{
    for (; *text; text++)
        printf("%s%c", *text == '|' ? "\\" : "", *text);
}

static void markdown_row(const command *c, const pesc_option *r)
{
    const char *value = opt_value(r) ? opt_value(r) : "";
    opt_name flag;
    fputs("| `", stdout);
    if (opt_letter(r, c))
        printf("-%c`, `", opt_letter(r, c));
    if (!command_is_argument(c, r->key))
        printf("--%s%s", opt_flag(flag, r->key), *value ? " " : "");
    markdown_cell(value);
    printf("` | %s | %s | ", r->key, r->fallback ? r->fallback : "");
    markdown_cell(r->help);
    puts(" |");
}

#define TABLE "| option | key in a file | default | meaning |\n|---|---|---|---|"

static void markdown_group(const command *c, pesc_option_group group)
{
    const pesc_option *r = next_option(c, NULL, group);
    const char *title = opt_group_title(group);
    if (r)
        printf("\n### %c%s\n\n" TABLE "\n", toupper((unsigned char)title[0]), title + 1);
    for (; r; r = next_option(c, r, group))
        markdown_row(c, r);
}

static void print_markdown(const command *c)
{
    printf("# pesc %s\n\n%c%s.\n\n    pesc %s%s%s [options]\n\n", c->name,
           toupper((unsigned char)c->summary[0]), c->summary + 1, c->name,
           c->synopsis[0] ? " " : "", c->synopsis);
    print_wrapped(c->about, 0, 0);
    putchar('\n');
    if (c->keys[0])
        puts("## Arguments\n\n" TABLE);
    for (const pesc_option *r = NULL; (r = opt_next(c, r));)
        if (command_is_argument(c, r->key))
            markdown_row(c, r);
    puts(c->keys[0] ? "\n## Options" : "## Options");
    for (int g = 0; g < PESC_OPTION_N_GROUPS; g++)
        markdown_group(c, (pesc_option_group)g);
    puts("\nBooleans are written `--json` or `--json true`, `--no-json` or `--json false`. Flags "
         "win "
         "over the file.\n\n## Examples\n");
    print_indented(c->examples, "    ");
    puts("\n## Exit codes\n\nThose of every command: [exit-codes.md](../exit-codes.md).");
}

/* ---- bash ---- */

static void print_command_names(void)
{
    for (const command *c = commands; c->name; c++)
        printf("%s%s", c == commands ? "" : " ", c->name);
}

/* The words of "auto|cpu|cuda[:i]" that can be typed as they are; N, X, FILE and the like cannot.
 */
static void print_choices(const char *values)
{
    for (const char *p = values; *p; p += *p == '|') {
        size_t n = strcspn(p, "|"), word = strcspn(p, "|[");
        if (p[0] < 'A' || p[0] > 'Z')
            printf("%.*s ", (int)word, p);
        p += n;
    }
}

/* What prints the values of an option that are names in a table of the command; NULL: nothing does.
 */
static void (*names_of(const command *c, const char *key))(void)
{
    static const struct {
        pesc_status (*run)(const options *o);
        const char *key;
        void (*print)(void);
    } rows[] = { { cmd_eval, "tasks", eval_names }, { cmd_plan, "gpu", plan_gpus } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].run == c->run && strcmp(rows[i].key, key) == 0)
            return rows[i].print;
    return NULL;
}

/* What may follow a command at once, and after its options that have values to choose from. */
static void print_values(const command *c)
{
    opt_name flag;
    fputs("        ((COMP_CWORD == 2)) && values=\"", stdout);
    for (size_t i = 0; c->actions && c->actions[i]; i++)
        printf("%s ", c->actions[i]);
    if (c->run == cmd_help)
        print_command_names();
    if (c->run == cmd_init)
        init_recipes();
    puts("\"");
    if (c->run == cmd_data) {
        fputs("        [[ $last == fetch ]] && values=\"", stdout);
        data_names();
        puts("\"");
    }
    puts("        case $last in");
    for (const pesc_option *r = NULL; (r = opt_next(c, r));) {
        const char *value = opt_value(r);
        void (*names)(void) = names_of(c, r->key);
        if (command_is_argument(c, r->key) || !value || (!names && !strchr(value, '|')))
            continue;
        printf("        --%s) values=\"", opt_flag(flag, r->key));
        if (names)
            names();
        else
            print_choices(value);
        puts("\" ;;");
    }
    puts("        esac ;;");
}

static void print_completion(void)
{
    opt_name flag;
    puts("_pesc()\n{\n    local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD - 1]}\n"
         "    local flags= values=\n"
         "    [[ $word == = ]] && word=\n" /* --method=VALUE is three words */
         "    [[ $last == = ]] && last=${COMP_WORDS[COMP_CWORD - 2]}\n"
         "    if ((COMP_CWORD == 1)); then");
    fputs("        COMPREPLY=($(compgen -W \"", stdout);
    print_command_names();
    puts("\" -- \"$word\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in");
    for (const command *c = commands; c->name; c++) {
        printf("    %s) flags=\"", c->name);
        for (const pesc_option *r = NULL; (r = opt_next(c, r));)
            if (!command_is_argument(c, r->key))
                printf("--%s ", opt_flag(flag, r->key));
        puts("\"");
        print_values(c);
    }
    puts("    esac\n    [[ $word == -* ]] && values=$flags\n"
         "    COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
         "    ((${#COMPREPLY[@]})) || COMPREPLY=($(compgen -f -- \"$word\"))\n}\n"
         "complete -o filenames -F _pesc pesc");
}

/* ---- the commands ---- */

static void list_commands(void)
{
    out_begin(NULL, '{');
    out_begin("commands", '[');
    for (const command *c = commands; c->name; c++)
        out_object(NULL, "name=%s summary=%s", c->name, c->summary);
    out_end();
    out_end();
}

pesc_status cmd_help(const options *o)
{
    const command *c = NULL;
    if (o->topic)
        TRY(command_find(o->topic, &c));
    if (o->markdown && !c)
        return out_fail(PESC_USAGE, "help: --markdown needs a command: pesc help info --markdown");
    if (o->json)
        list_commands();
    else if (o->man)
        print_man();
    else if (o->completion)
        print_completion();
    else if (o->markdown)
        print_markdown(c);
    else if (c)
        help_command(c);
    else
        help_overview();
    return PESC_OK;
}

pesc_status cmd_version(const options *o)
{
    if (o->json)
        out_object(NULL, "version=%s", PESC_VERSION);
    else
        puts("pesc " PESC_VERSION);
    return PESC_OK;
}
