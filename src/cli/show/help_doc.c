/* help_doc: the tables as a manual page, as reference pages and as a completion script. */
#include "cli/show/help.h"

#include "cli/command.h"

#include <ctype.h>
#include <stdio.h>

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
        const pesc_option *r = help_next(c, NULL, (pesc_option_group)g);
        if (r)
            printf(".PP\n.I %s\n", opt_group_title((pesc_option_group)g));
        for (; r; r = help_next(c, r, (pesc_option_group)g))
            man_option(c, r);
    }
    puts(".PP\n.nf");
    man_text(c->examples);
    puts(".fi");
}

void help_man(void)
{
    puts(".TH PESC 1 \"\" \"pesc " PESC_VERSION "\" \"User Commands\"\n.SH NAME\n"
         "pesc \\- load, tokenize and run language models\n.SH SYNOPSIS\n"
         ".B pesc\n.I COMMAND\n[arguments] [options]\n.SH DESCRIPTION\n"
         "Options are written \\fB\\-\\-name value\\fR or \\fB\\-\\-name=value\\fR, booleans\n"
         "\\fB\\-\\-json\\fR, \\fB\\-\\-no\\-json\\fR or \\fB\\-\\-json false\\fR; in a file\n"
         "(\\fB\\-c\\fR) the same options are keys with _ for \\-.\n"
         "Results go to standard output, progress and errors to standard error.\n.SH COMMANDS");
    for (size_t i = 0; i < N_COMMANDS; i++)
        man_command(&commands[i]);
    puts(".SH EXIT STATUS");
    for (size_t i = 0; help_exits[i].text; i++)
        printf(".TP\n.B %d\n%s\n", help_exits[i].code, help_exits[i].text);
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
    const pesc_option *r = help_next(c, NULL, group);
    const char *title = opt_group_title(group);
    if (r)
        printf("\n### %c%s\n\n" TABLE "\n", toupper((unsigned char)title[0]), title + 1);
    for (; r; r = help_next(c, r, group))
        markdown_row(c, r);
}

void help_markdown(const command *c)
{
    printf("# pesc %s\n\n%c%s.\n\n    pesc %s%s%s [options]\n\n", c->name,
           toupper((unsigned char)c->summary[0]), c->summary + 1, c->name,
           c->synopsis[0] ? " " : "", c->synopsis);
    help_wrap(c->about, 0, 0);
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
    help_indented(c->examples, "    ");
    puts("\n## Exit codes\n\nThose of every command: [exit-codes.md](../exit-codes.md).");
}

/* ---- bash ---- */

void help_bash(void)
{
    opt_name flag;
    puts("_pesc()\n{\n    local word=${COMP_WORDS[COMP_CWORD]} flags=\n"
         "    if ((COMP_CWORD == 1)); then");
    fputs("        COMPREPLY=($(compgen -W \"", stdout);
    for (size_t i = 0; i < N_COMMANDS; i++)
        printf("%s%s", i ? " " : "", commands[i].name);
    puts("\" -- \"$word\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in");
    for (size_t k = 0; k < N_COMMANDS; k++) {
        printf("    %s) flags=\"", commands[k].name);
        for (const pesc_option *r = NULL; (r = opt_next(&commands[k], r));)
            if (!command_is_argument(&commands[k], r->key))
                printf("--%s ", opt_flag(flag, r->key));
        puts("\" ;;");
    }
    puts("    esac\n    if [[ $word == -* ]]; then\n"
         "        COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"))\n    else\n"
         "        COMPREPLY=($(compgen -f -- \"$word\"))\n    fi\n}\n"
         "complete -o filenames -F _pesc pesc");
}
