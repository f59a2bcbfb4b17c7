#include "data/pair.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

/* Names of the fields with the two answers; the second row is that of stack-exchange-paired. */
static const char *const fields[][2] = { { "chosen", "rejected" }, { "response_j", "response_k" } };

static const char *const *fields_of(const json_t *v)
{
    return json_has(v, fields[1][0]) && !json_has(v, fields[0][0]) ? fields[1] : fields[0];
}

/* Where the one answer of a labelled record is. */
static const char *labelled_field(const json_t *v)
{
    static const char *const keys[] = { "completion", "response", "messages", "conversations" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_has(v, keys[i]))
            return keys[i];
    return "completion";
}

/* ---- prompts ---- */

/* The text or the turns before the answers; NULL where the answers hold them. */
static const json_t *prompt_of(const json_t *v, const char **key)
{
    static const char *const keys[] = { "prompt", "question", "instruction", "conversations",
                                        "messages" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *p = json_object_get(v, keys[i]);
        *key = keys[i];
        if (p && !json_is_null(p))
            return p;
    }
    *key = "prompt";
    return NULL;
}

static bool is_text(const json_t *v, const char *key)
{
    return json_is_string(json_object_get(v, key));
}

/* ---- the forms ---- */

static bool is_human(const json_t *text)
{
    return json_is_string(text) && strstr(json_string_value(text), "\n\nAssistant:");
}

static bool has_prompt(const json_t *v)
{
    const char *key;
    return prompt_of(v, &key) != NULL;
}

bool pair_fits(const json_t *v, pair_form form)
{
    const char *const *f = fields_of(v);
    if (form == PAIR_IDS)
        return json_has(v, "chosen_ids") && json_has(v, "rejected_ids");
    if (!json_has(v, f[0]) || !json_has(v, f[1]))
        return false;
    if (form == PAIR_HUMAN)
        return !has_prompt(v) && is_human(json_object_get(v, f[0]));
    bool plain = f == fields[0] && is_text(v, "prompt") && is_text(v, f[0]) && is_text(v, f[1]) &&
                 !json_has(v, "system");
    return plain == (form == PAIR_TEXT);
}

bool pair_labelled_fits(const json_t *v, pair_form form)
{
    if (!json_has(v, "label"))
        return false;
    if (form == PAIR_IDS)
        return json_has(v, "prompt_ids") && json_has(v, "completion_ids");
    bool plain = is_text(v, "prompt") && is_text(v, "completion");
    return json_has(v, labelled_field(v)) && plain == (form == PAIR_TEXT) && form != PAIR_HUMAN;
}

/* ---- conversations ---- */

/* A copy of a turn with a word on whether it is trained. */
static json_t *turn_copy(const json_t *turn, bool trained)
{
    json_t *copy = json_copy((json_t *)turn);
    if (!json_is_object(copy))
        return copy;
    json_object_del(copy, "mask");
    json_object_del(copy, "weight");
    json_object_del(copy, "trainable");
    json_object_set_new(copy, "train", json_boolean(trained));
    return copy;
}

static void put_turn(json_t *list, const char *role, const json_t *text)
{
    json_array_append_new(list, json_pack("{s:s, s:O}", "role", role, "content", (json_t *)text));
}

static const char *role_of(const json_t *turn)
{
    const char *role = json_string_value(json_object_get(turn, "role"));
    role = role ? role : json_string_value(json_object_get(turn, "from"));
    return role ? role : "";
}

static bool is_answer(const json_t *turn)
{
    static const char *const names[] = { "assistant", "gpt", "model", "bot" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(role_of(turn), names[i]) == 0)
            return true;
    return false;
}

/* The turns before the answers: those of the prompt, or its text as the user's. */
static pesc_status put_prompt(json_t *list, const json_t *v)
{
    const char *key;
    const json_t *prompt = prompt_of(v, &key), *system = json_object_get(v, "system");
    const json_t *input = json_object_get(v, "input");
    if (json_is_string(system) && json_string_length(system))
        put_turn(list, "system", system);
    if (json_is_array(prompt)) {
        json_array_extend(list, (json_t *)prompt);
        return PESC_OK;
    }
    if (!json_is_string(prompt))
        return fail(PESC_FORMAT, "%s: found %s, expected a text or a list of turns", key,
                    prompt ? json_kind(prompt) : "nothing");
    if (strcmp(key, "instruction") != 0 || !json_is_string(input) || !json_string_length(input)) {
        put_turn(list, "user", prompt);
        return PESC_OK;
    }
    str both = { 0 };
    str_printf(&both, "%s\n%s", json_string_value(prompt), json_string_value(input));
    json_t *text = str_ok(&both) ? json_stringn(both.p, both.n) : NULL;
    str_free(&both);
    put_turn(list, "user", text);
    json_decref(text);
    return PESC_OK;
}

/* A whole conversation: more than the answer, or no prompt to put before it. */
static bool is_whole(const json_t *v, const json_t *answer)
{
    return json_is_array(answer) && (!has_prompt(v) || !is_answer(json_array_get(answer, 0)));
}

/* A whole conversation begins with the prompt, where there is one as turns too. */
static pesc_status check_prompt(const json_t *v, const json_t *whole, const char *key)
{
    const json_t *prompt = json_object_get(v, "prompt");
    for (size_t i = 0; json_is_array(prompt) && i < json_array_size(prompt); i++)
        if (!json_equal(json_array_get(prompt, i), json_array_get(whole, i)))
            return fail(PESC_FORMAT,
                        "%s: is a whole conversation, but its turn %zu is not that of prompt; "
                        "expected the same beginning, or the answer alone",
                        key, i + 1);
    return PESC_OK;
}

/* The turns of one answer with those before it, as a list in *out. */
static pesc_status chat_turns(json_t **out, const json_t *v, const char *key)
{
    const json_t *answer = json_object_get(v, key);
    json_t *list = *out = json_array();
    TRY(is_whole(v, answer) ? check_prompt(v, answer, key) : put_prompt(list, v));
    if (json_is_string(answer))
        put_turn(list, "assistant", answer);
    else if (json_is_object(answer))
        json_array_append(list, (json_t *)answer);
    else if (json_is_array(answer))
        json_array_extend(list, (json_t *)answer);
    else
        return fail(PESC_FORMAT, "%s: found %s, expected a text or a list of turns", key,
                    json_kind(answer));
    return PESC_OK;
}

/* "\n\nHuman: ...\n\nAssistant: ..." as turns, as HH-RLHF writes them. */
static pesc_status human_turns(json_t **out, const json_t *v, const char *key)
{
    static const struct {
        const char *mark, *role;
    } marks[] = { { "\n\nHuman:", "user" }, { "\n\nAssistant:", "assistant" } };
    const char *at = json_string_value(json_object_get(v, key));
    json_t *list = *out = json_array();
    if (!at)
        return fail(PESC_FORMAT, "%s: found %s, expected a text", key,
                    json_kind(json_object_get(v, key)));
    while (*at) {
        size_t i = 0;
        while (i < 2 && strncmp(at, marks[i].mark, strlen(marks[i].mark)) != 0)
            i++;
        if (i == 2)
            return fail(PESC_FORMAT,
                        "%s: does not begin with a blank line and \"Human:\", as all conversations "
                        "of this file",
                        key);
        at += strlen(marks[i].mark);
        at += *at == ' ';
        const char *end = at;
        while (*end && strncmp(end, marks[0].mark, strlen(marks[0].mark)) != 0 &&
               strncmp(end, marks[1].mark, strlen(marks[1].mark)) != 0)
            end++;
        json_t *text = json_stringn(at, (size_t)(end - at));
        put_turn(list, marks[i].role, text);
        json_decref(text);
        at = end;
    }
    return PESC_OK;
}

/* The last turn is an answer, and it alone is trained. */
static pesc_status chat_record(json_t **out, json_t *turns, const json_t *v, const char *key)
{
    size_t n = json_array_size(turns);
    const json_t *first = json_array_get(turns, 0), *last = json_array_get(turns, n - 1);
    bool named = json_has(last, "role"); /* else as ShareGPT names the fields of a turn */
    if (n == 0 || !is_answer(last))
        return fail(PESC_FORMAT, "%s: ends with %s, expected an answer of the assistant", key,
                    n ? "another turn" : "nothing");
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, turn_copy(json_array_get(turns, i), i + 1 == n));
    if (json_has(first, "role") != named) {
        json_decref(list);
        return fail(PESC_FORMAT,
                    "%s: some turns have role and content, others from and value; use one of them",
                    key);
    }
    *out = json_pack("{s:o}", named ? "messages" : "conversations", list);
    const json_t *tools = json_object_get(v, "tools");
    if (*out && tools)
        json_object_set(*out, "tools", (json_t *)tools);
    return *out ? PESC_OK : fail_nomem("a data record", n * 64);
}

/* ---- reading ---- */

/* The answer in the field `key` with its prompt; *turns: of a conversation, else NULL. */
static pesc_status read_answer(json_t **out, json_t **turns, const json_t *v, const char *key,
                               pair_form form)
{
    *out = *turns = NULL;
    if (form == PAIR_TEXT) {
        const json_t *prompt = json_object_get(v, "prompt"), *answer = json_object_get(v, key);
        if (!json_is_string(prompt) || !json_is_string(answer))
            return fail(PESC_FORMAT,
                        "%s: found %s, expected a text, as in this file's first record",
                        json_is_string(prompt) ? key : "prompt",
                        json_kind(json_is_string(prompt) ? answer : prompt));
        *out = json_pack("{s:O, s:O}", "prompt", prompt, "completion", answer);
        return *out ? PESC_OK : fail_nomem("a data record", 64);
    }
    TRY(form == PAIR_HUMAN ? human_turns(turns, v, key) : chat_turns(turns, v, key));
    return chat_record(out, *turns, v, key);
}

/* The prompt's ids with those of an answer, which are trained. */
static pesc_status read_ids(json_t **out, const json_t *v, const char *key)
{
    const json_t *prompt = json_object_get(v, "prompt_ids"), *answer = json_object_get(v, key);
    if (!json_is_array(answer) || (prompt && !json_is_array(prompt)))
        return fail(PESC_FORMAT, "%s: found %s, expected a list of token ids",
                    json_is_array(answer) ? "prompt_ids" : key,
                    json_kind(json_is_array(answer) ? prompt : answer));
    json_t *ids = json_array(), *labels = json_array();
    for (size_t i = 0; i < json_array_size(prompt); i++)
        json_array_append_new(labels, json_integer(-100));
    if (prompt)
        json_array_extend(ids, (json_t *)prompt);
    json_array_extend(ids, (json_t *)answer);
    json_array_extend(labels, (json_t *)answer);
    *out = json_pack("{s:o, s:o}", "input_ids", ids, "labels", labels);
    return *out ? PESC_OK : fail_nomem("a data record", 64);
}

/* Both conversations are the same up to their last answers, which are not. */
static pesc_status compare(const json_t *a, const json_t *b)
{
    size_t n = json_array_size(a);
    size_t shared = n < json_array_size(b) ? n : json_array_size(b);
    for (size_t i = 0; i + 1 < shared; i++)
        if (!json_equal(json_array_get(a, i), json_array_get(b, i)))
            return fail(PESC_FORMAT,
                        "chosen and rejected part at turn %zu, before the last answer; both must "
                        "answer the same conversation",
                        i + 1);
    if (n != json_array_size(b))
        return fail(PESC_FORMAT,
                    "chosen has %zu turns, rejected %zu; both must answer the same conversation", n,
                    json_array_size(b));
    return PESC_OK;
}

static pesc_status read_both(pair_answers *out, json_t *turns[2], const json_t *v, pair_form form)
{
    static const char *const ids[] = { "chosen_ids", "rejected_ids" };
    const char *const *keys = form == PAIR_IDS ? ids : fields_of(v);
    for (size_t i = 0; i < 2; i++) {
        out->role[i] = i ? ANSWER_REJECTED : ANSWER_CHOSEN;
        out->n++;
        if (form == PAIR_IDS)
            TRY(read_ids(&out->record[i], v, keys[i]));
        else
            TRY(read_answer(&out->record[i], &turns[i], v, keys[i], form));
    }
    if (turns[0])
        TRY(compare(turns[0], turns[1]));
    if (json_equal(out->record[0], out->record[1]))
        return fail(PESC_FORMAT, "%s and %s: are the same answer; a pair needs two", keys[0],
                    keys[1]);
    return PESC_OK;
}

pesc_status pair_read(pair_answers *out, const json_t *v, pair_form form)
{
    json_t *turns[2] = { NULL, NULL };
    *out = (pair_answers){ 0 };
    pesc_status s = read_both(out, turns, v, form);
    json_decref(turns[0]);
    json_decref(turns[1]);
    return s;
}

/* As JSON has it, or as a table does, where every field is a text. */
static pesc_status read_label(const json_t *v, answer_role *role)
{
    static const char *const words[] = { "0", "1", "false", "true", "False", "True" };
    enum { WORDS = sizeof words / sizeof *words };
    const json_t *label = json_object_get(v, "label");
    const char *text = json_string_value(label);
    double number = json_is_number(label) ? json_number_value(label) : -1;
    size_t word = 0;
    while (word < WORDS && !(text && strcmp(text, words[word]) == 0))
        word++;
    if (!json_is_boolean(label) && number != 0 && number != 1 && word == WORDS)
        return fail(PESC_FORMAT, "label: found %s, expected true, false, 1 or 0",
                    label ? json_kind(label) : "nothing");
    bool wanted = json_is_true(label) || number == 1 || (word < WORDS && word % 2);
    *role = wanted ? ANSWER_CHOSEN : ANSWER_REJECTED;
    return PESC_OK;
}

pesc_status pair_labelled_read(pair_answers *out, const json_t *v, pair_form form)
{
    json_t *turns = NULL;
    *out = (pair_answers){ .n = 1 };
    TRY(read_label(v, &out->role[0]));
    if (form == PAIR_IDS)
        return read_ids(&out->record[0], v, "completion_ids");
    pesc_status s = read_answer(&out->record[0], &turns, v, labelled_field(v), form);
    json_decref(turns);
    return s;
}

void pair_free(pair_answers *a)
{
    for (size_t i = 0; i < 2; i++)
        json_decref(a->record[i]);
    *a = (pair_answers){ 0 };
}
