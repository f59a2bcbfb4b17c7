#include "cli/show/help.h"

#include "cli/command.h"

#include <stdio.h>
#include <string.h>

const help_exit help_exits[] = {
    { 0, "done" },
    { 1, "the run failed" },
    { 2, "usage or configuration" },
    { 3, "a bad input file" },
    { 4, "missing resource: disk, memory, device, library" },
    { 5, "numeric failure: the numbers are not finite" },
    { 75, "stopped by a signal after saving" },
    { 0, NULL },
};

void help_overview(void)
{
    puts("pesc " PESC_VERSION ": dense language models into sparse experts: tune, test, explain, "
         "run them");
    for (size_t i = 0; i < CMD_HELP; i++) { /* the last line explains help */
        bool first = i == 0 || strcmp(commands[i].job, commands[i - 1].job) != 0;
        printf("  %-7spesc %-12s%s\n", first ? commands[i].job : "", commands[i].name,
               commands[i].summary);
    }
    puts("Try: pesc demo. pesc help COMMAND explains one; a MODEL is a directory, a run or a .gguf "
         "file.");
}

void help_indented(const char *lines, const char *indent)
{
    for (bool start = true; *lines; lines++) {
        if (start)
            fputs(indent, stdout);
        putchar(*lines);
        start = *lines == '\n';
    }
}

void help_wrap(const char *text, int at, int indent)
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
    bool told = r->fallback && strcmp(r->fallback, "false") != 0;
    snprintf(help, sizeof help, "%s%s%s%s", r->help, told ? " (default " : "",
             told ? r->fallback : "", told ? ")" : "");
    int n = printf("  %-*s", INDENT - 2, left);
    if (strlen(left) >= INDENT - 2)
        n = printf("\n%*s", INDENT, "") - 1;
    help_wrap(help, n, n);
}

static void print_arguments(const command *c)
{
    for (const pesc_option *r = NULL; (r = opt_next(c, r));)
        if (command_is_argument(c, r->key))
            print_row(c, r, true);
}

const pesc_option *help_next(const command *c, const pesc_option *row, pesc_option_group group)
{
    do
        row = opt_next_of(c, row, group);
    while (row && command_is_argument(c, row->key));
    return row;
}

static void print_group(const command *c, pesc_option_group group)
{
    const pesc_option *r = help_next(c, NULL, group);
    if (r)
        printf("\n %s\n", opt_group_title(group));
    for (; r; r = help_next(c, r, group))
        print_row(c, r, false);
}

void help_command(const command *c)
{
    printf("pesc %s: %s\n\nusage: pesc %s%s%s [options]\n\n", c->name, c->summary, c->name,
           c->synopsis[0] ? " " : "", c->synopsis);
    help_wrap(c->about, 0, 0);
    if (c->keys[0]) {
        puts("\narguments");
        print_arguments(c);
    }
    puts("\noptions (booleans: --json or --json true, --no-json or --json false)");
    for (int g = 0; g < PESC_OPTION_N_GROUPS; g++)
        print_group(c, (pesc_option_group)g);
    puts("\nexamples");
    help_indented(c->examples, "  ");
    puts("\nexit codes");
    for (size_t i = 0; help_exits[i].text; i++)
        printf("  %-4d%s\n", help_exits[i].code, help_exits[i].text);
}
