/* taskmade: small evaluation tasks and their data, made for the tests. */
#ifndef TESTS_SUPPORT_TASKMADE_H
#define TESTS_SUPPORT_TASKMADE_H

#include "eval/allowance.h"

/* What the templates and patterns of a test may do: as much as an evaluation that begins. */
static inline allowance *taskmade_work(void)
{
    static allowance work;
    allowance_open(&work);
    return &work;
}

/* A task of three choices with few-shot examples; columns q, c, a. */
static const char taskmade_choice[] =
    "{\"task\": \"made_choice\", \"kind\": \"choice\", \"version\": 2, \"data\": \"made\","
    " \"split\": \"test\", \"columns\": {\"q\": \"text\", \"c\": \"texts\", \"a\": \"label\"},"
    " \"published\": \"example.org/made\", \"description\": \"About {{ q }}.\\n\\n\","
    " \"question\": \"Q: {{ q }}\\nA:\", \"choices\": \"{{ c }}\", \"gold\": \"{{ a }}\", "
    "\"draw\": \"other\","
    " \"shot_split\": \"train\", \"metrics\": [\"acc\", \"acc_norm\"]}";

static const char taskmade_rows[] =
    "{\"q\": \"one\", \"c\": [\"a\", \"bb\", \"\\u00e9\"], \"a\": 1}\n"
    "{\"q\": \"two\", \"c\": [\"x\", \"y\"], \"a\": \"0\"}\n"
    "{\"q\": \"three\", \"c\": [\"k\", \"l\"], \"a\": 1}\n";

static const char taskmade_shots[] =
    "{\"q\": \"one\", \"c\": [\"a\", \"bb\", \"\\u00e9\"], \"a\": 1}\n"
    "{\"q\": \"s1\", \"c\": [\"r1\", \"w1\"], \"a\": 0}\n"
    "{\"q\": \"s2\", \"c\": [\"w2\", \"r2\"], \"a\": 1}\n";

#endif
