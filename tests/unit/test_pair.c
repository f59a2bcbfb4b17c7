/* Records of preferences: every shape that is read, by what it becomes, and those that are not. */
#include "data/pair.h"
#include "data/record.h"

#include "support/check.h"

#include <stdio.h>
#include <string.h>

static json_t *parse(const char *text)
{
    json_t *v;
    must(json_parse(&v, text, strlen(text), "record"));
    return v;
}

/* "user=U|assistant=A*|" of a conversation, * where it is trained; text and ids likewise. */
static void describe(const json_t *v, char *out, size_t cap)
{
    const record_format *f = record_format_detect(v, RECORD_INSTRUCTION);
    record r;
    assert_non_null(f);
    must(record_read(&r, f, v));
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < r.n; i++) {
        const char *role =
            json_string_value(json_object_get(json_array_get(r.messages, i), "role"));
        bool trained = record_is_answer(&r, i) && !r.masked[i];
        n += (size_t)snprintf(out + n, cap - n, "%s=%s%s|", role ? role : "text",
                              record_text(&r, i), trained ? "*" : "");
    }
    for (size_t i = 0; i < r.n_ids; i++)
        n += (size_t)snprintf(out + n, cap - n, "%d%s,", r.ids[i], r.labels[i] < 0 ? "" : "*");
    record_free(&r);
}

static const struct {
    const char *json, *format, *first, *second; /* second: NULL of a labelled answer */
    answer_role role;
} shapes[] = {
    { "{\"prompt\":\"P\",\"chosen\":\"C\",\"rejected\":\"R\"}", "preference-text",
      "user=P|assistant=C*|", "user=P|assistant=R*|", ANSWER_CHOSEN },
    { "{\"prompt\":[{\"role\":\"user\",\"content\":\"P\"}],"
      "\"chosen\":[{\"role\":\"assistant\",\"content\":\"C\"}],"
      "\"rejected\":[{\"role\":\"assistant\",\"content\":\"R\"}]}",
      "preference", "user=P|assistant=C*|", "user=P|assistant=R*|", ANSWER_CHOSEN },
    { "{\"chosen\":[{\"role\":\"user\",\"content\":\"P\"},{\"role\":\"assistant\",\"content\":"
      "\"A\"},"
      "{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":\"C\"}],"
      "\"rejected\":[{\"role\":\"user\",\"content\":\"P\"},{\"role\":\"assistant\",\"content\":"
      "\"A\"},"
      "{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":\"R\"}]}",
      "preference", "user=P|assistant=A|user=Q|assistant=C*|",
      "user=P|assistant=A|user=Q|assistant=R*|", ANSWER_CHOSEN },
    /* UltraFeedback, binarised */
    { "{\"prompt\":\"P\",\"prompt_id\":\"1\",\"messages\":[{\"role\":\"user\",\"content\":\"P\"},"
      "{\"role\":\"assistant\",\"content\":\"C\"}],\"score_chosen\":9,"
      "\"chosen\":[{\"role\":\"user\",\"content\":\"P\"},{\"role\":\"assistant\",\"content\":\"C\"}"
      "],"
      "\"rejected\":[{\"role\":\"user\",\"content\":\"P\"},"
      "{\"role\":\"assistant\",\"content\":\"R\"}]}",
      "preference", "user=P|assistant=C*|", "user=P|assistant=R*|", ANSWER_CHOSEN },
    /* HH-RLHF */
    { "{\"chosen\":\"\\n\\nHuman: P\\n\\nAssistant: A\\n\\nHuman: Q\\n\\nAssistant: C\","
      "\"rejected\":\"\\n\\nHuman: P\\n\\nAssistant: A\\n\\nHuman: Q\\n\\nAssistant: R\"}",
      "preference-human", "user=P|assistant=A|user=Q|assistant=C*|",
      "user=P|assistant=A|user=Q|assistant=R*|", ANSWER_CHOSEN },
    { "{\"question\":\"P\",\"response_j\":\"C\",\"response_k\":\"R\",\"qid\":3}", "preference",
      "user=P|assistant=C*|", "user=P|assistant=R*|", ANSWER_CHOSEN },
    { "{\"system\":\"S\",\"question\":\"P\",\"chosen\":\"C\",\"rejected\":\"R\"}", "preference",
      "system=S|user=P|assistant=C*|", "system=S|user=P|assistant=R*|", ANSWER_CHOSEN },
    { "{\"instruction\":\"P\",\"input\":\"I\",\"chosen\":\"C\",\"rejected\":\"R\"}", "preference",
      "user=P\nI|assistant=C*|", "user=P\nI|assistant=R*|", ANSWER_CHOSEN },
    { "{\"conversations\":[{\"from\":\"human\",\"value\":\"P\"}],"
      "\"chosen\":{\"from\":\"gpt\",\"value\":\"C\"},\"rejected\":{\"from\":\"gpt\",\"value\":"
      "\"R\"}}",
      "preference", "user=P|assistant=C*|", "user=P|assistant=R*|", ANSWER_CHOSEN },
    { "{\"prompt_ids\":[5,6],\"chosen_ids\":[7],\"rejected_ids\":[8,9]}", "preference-ids",
      "5,6,7*,", "5,6,8*,9*,", ANSWER_CHOSEN },
    { "{\"prompt\":\"P\",\"response\":\"A\",\"label\":true}", "labelled", "user=P|assistant=A*|",
      NULL, ANSWER_CHOSEN },
    { "{\"prompt\":\"P\",\"completion\":\"A\",\"label\":0}", "labelled-text",
      "user=P|assistant=A*|", NULL, ANSWER_REJECTED },
    { "{\"prompt\":[{\"role\":\"user\",\"content\":\"P\"}],"
      "\"completion\":[{\"role\":\"assistant\",\"content\":\"A\"}],\"label\":false}",
      "labelled", "user=P|assistant=A*|", NULL, ANSWER_REJECTED },
    { "{\"messages\":[{\"role\":\"user\",\"content\":\"P\"},"
      "{\"role\":\"assistant\",\"content\":\"A\"}],\"label\":1}",
      "labelled", "user=P|assistant=A*|", NULL, ANSWER_CHOSEN },
    { "{\"prompt_ids\":[5],\"completion_ids\":[7,8],\"label\":false}", "labelled-ids", "5,7*,8*,",
      NULL, ANSWER_REJECTED },
    { "{\"prompt\":\"P\",\"response\":\"A\",\"label\":\"True\"}", "labelled",
      "user=P|assistant=A*|", NULL, ANSWER_CHOSEN },
    { "{\"prompt\":\"P\",\"response\":\"A\",\"label\":\"0\"}", "labelled", "user=P|assistant=A*|",
      NULL, ANSWER_REJECTED },
    { "{\"prompt\":\"P\",\"response\":\"A\",\"label\":1.0}", "labelled", "user=P|assistant=A*|",
      NULL, ANSWER_CHOSEN },
};

static void reads_every_shape(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        json_t *v = parse(shapes[i].json);
        bool pair = shapes[i].second != NULL;
        const record_format *as, *f = record_format_detect(v, pair ? RECORD_PAIR : RECORD_LABELLED);
        assert_non_null(f);
        assert_string_equal(record_format_name(f), shapes[i].format);
        pair_answers a;
        must(record_answers(&a, f, v, &as));
        assert_int_equal(a.n, pair ? 2 : 1);
        assert_int_equal(a.role[0], shapes[i].role);
        char got[256];
        describe(a.record[0], got, sizeof got);
        /* plain text is not a conversation: the same two strings, without roles */
        bool plain = strstr(shapes[i].format, "-text") != NULL;
        assert_int_equal(record_format_kind(f) == RECORD_COMPLETION, plain);
        if (!plain)
            assert_string_equal(got, shapes[i].first);
        if (pair && !plain) {
            describe(a.record[1], got, sizeof got);
            assert_string_equal(got, shapes[i].second);
        }
        pair_free(&a);
        json_decref(v);
    }
}

#define TURN(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"

/* With the format of the file's first record, and what is said of a later record. */
static const struct {
    const char *format, *json, *sentence;
} bad[] = {
    { "preference-text", "{\"prompt\":\"P\",\"chosen\":\"C\",\"rejected\":\"C\"}",
      "chosen and rejected: are the same answer" },
    { "preference-text", "{\"prompt\":\"P\",\"chosen\":\"C\"}", "rejected: found nothing" },
    { "preference-text", "{\"prompt\":3,\"chosen\":\"C\",\"rejected\":\"R\"}",
      "prompt: found an integer" },
    { "preference-text", "{\"prompt\":\"P\",\"chosen\":[],\"rejected\":\"R\"}",
      "chosen: found an array" },
    { "preference-text", "{\"chosen\":\"C\",\"rejected\":\"R\"}", "prompt: found nothing" },
    { "preference", "{\"chosen\":[],\"rejected\":[]}", "chosen: ends with nothing" },
    { "preference", "{\"chosen\":\"C\",\"rejected\":\"R\"}", "prompt: found nothing" },
    { "preference", "{\"prompt\":{},\"chosen\":\"C\",\"rejected\":\"R\"}",
      "prompt: found an object" },
    { "preference", "{\"question\":\"P\",\"chosen\":5,\"rejected\":\"R\"}",
      "chosen: found an integer" },
    { "preference", "{\"question\":\"P\",\"chosen\":null,\"rejected\":\"R\"}",
      "chosen: found null" },
    { "preference", "{\"question\":\"P\",\"response_j\":\"C\",\"response_k\":\"C\"}",
      "response_j and response_k: are the same answer" },
    { "preference", "{\"chosen\":[" TURN("user", "P") "],\"rejected\":[" TURN("user", "P") "]}",
      "chosen: ends with another turn, expected an answer of the assistant" },
    { "preference",
      "{\"chosen\":[" TURN("user", "P") "," TURN("assistant", "C") "],\"rejected\":[" TURN(
          "user", "Q") "," TURN("assistant", "R") "]}",
      "part at turn 1, before the last answer" },
    { "preference",
      "{\"chosen\":[" TURN("user", "P") "," TURN("assistant", "C") "],\"rejected\":[" TURN(
          "user", "P") "," TURN("assistant", "A") "," TURN("user", "Q") "," TURN("assistant",
                                                                                 "R") "]}",
      "chosen has 2 turns, rejected 4; both must answer the same conversation" },
    { "preference",
      "{\"chosen\":[" TURN("user", "P") "," TURN("assistant", "C") "],\"rejected\":[" TURN(
          "assistant", "C") "]}",
      "chosen has 2 turns, rejected 1" },
    { "preference",
      "{\"chosen\":[{\"from\":\"human\",\"value\":\"P\"}," TURN(
          "assistant", "C") "],"
                            "\"rejected\":[" TURN("user", "P") "," TURN("assistant", "R") "]}",
      "chosen: some turns have role and content, others from and value" },
    { "preference", "{\"chosen\":[3,4],\"rejected\":[3,5]}", "chosen: ends with another turn" },
    { "preference-human", "{\"chosen\":5,\"rejected\":\"R\"}", "chosen: found an integer" },
    { "preference-human",
      "{\"chosen\":\"Human: P\\n\\nAssistant: C\",\"rejected\":\"\\n\\nHuman: P\\n\\nAssistant: "
      "R\"}",
      "chosen: does not begin with a blank line and \"Human:\"" },
    { "preference-human",
      "{\"chosen\":\"\\n\\nHuman: P\",\"rejected\":\"\\n\\nHuman: P\\n\\nAssistant: R\"}",
      "chosen: ends with another turn" },
    { "preference-human",
      "{\"chosen\":\"\\n\\nHuman: P\\n\\nAssistant: C\","
      "\"rejected\":\"\\n\\nHuman: Q\\n\\nAssistant: R\"}",
      "part at turn 1" },
    { "preference-human", "{\"chosen\":\"\",\"rejected\":\"\"}", "chosen: ends with nothing" },
    { "preference-ids", "{\"prompt_ids\":[1],\"chosen_ids\":5,\"rejected_ids\":[2]}",
      "chosen_ids: found an integer" },
    { "preference-ids", "{\"prompt_ids\":5,\"chosen_ids\":[1],\"rejected_ids\":[2]}",
      "prompt_ids: found an integer" },
    { "preference-ids", "{\"prompt_ids\":[1],\"chosen_ids\":[2],\"rejected_ids\":[2]}",
      "are the same answer" },
    { "labelled", "{\"prompt\":\"P\",\"response\":\"A\",\"label\":\"yes\"}",
      "label: found a string, expected true, false, 1 or 0" },
    { "labelled", "{\"prompt\":\"P\",\"response\":\"A\",\"label\":0.5}",
      "label: found a fraction" },
    { "preference",
      "{\"prompt\":[{\"role\":\"user\",\"content\":\"P\"}],"
      "\"chosen\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":\"A\"}"
      "],"
      "\"rejected\":[{\"role\":\"assistant\",\"content\":\"B\"}]}",
      "chosen: is a whole conversation, but its turn 1 is not that of prompt" },
    { "labelled", "{\"prompt\":\"P\",\"response\":\"A\"}", "label: found nothing" },
    { "labelled", "{\"prompt\":\"P\",\"response\":\"A\",\"label\":2}", "label: found an integer" },
    { "labelled", "{\"prompt\":\"P\",\"label\":true}", "completion: found nothing" },
    { "labelled", "{\"response\":\"A\",\"label\":true}", "prompt: found nothing" },
    { "labelled-text", "{\"prompt\":\"P\",\"completion\":{},\"label\":true}",
      "completion: found an object" },
    { "labelled-ids", "{\"prompt_ids\":[1],\"label\":true}", "completion_ids: found nothing" },
};

static void says_what_is_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *v = parse(bad[i].json);
        const record_format *as;
        pair_answers a;
        must_fail(record_answers(&a, record_format_find(bad[i].format), v, &as), PESC_FORMAT,
                  bad[i].sentence);
        pair_free(&a);
        json_decref(v);
    }
}

/* A file of preferences is told from one of instructions, and the other way round. */
static void finds_the_class(void **state)
{
    (void)state;
    json_t *pair = parse(shapes[0].json), *ultra = parse(shapes[3].json);
    json_t *labelled = parse(shapes[10].json), *number = parse(shapes[13].json);
    assert_null(record_format_detect(pair, RECORD_INSTRUCTION));
    assert_non_null(strstr(pesc_last_error(), "holds a pair of answers"));
    assert_null(record_format_detect(labelled, RECORD_PAIR));
    assert_non_null(strstr(pesc_last_error(), "fits no format of pairs: found the fields"));
    assert_null(record_format_detect(pair, RECORD_LABELLED));
    assert_string_equal(record_format_name(record_format_detect(pair, RECORD_ANY)),
                        "preference-text");
    assert_string_equal(record_format_name(record_format_detect(ultra, RECORD_ANY)), "preference");
    assert_string_equal(record_format_name(record_format_detect(ultra, RECORD_INSTRUCTION)),
                        "messages");
    assert_string_equal(record_format_name(record_format_detect(labelled, RECORD_ANY)), "labelled");
    assert_string_equal(record_format_name(record_format_detect(labelled, RECORD_INSTRUCTION)),
                        "prompt");
    assert_string_equal(record_format_name(record_format_detect(number, RECORD_ANY)), "messages");
    json_decref(pair);
    json_decref(ultra);
    json_decref(labelled);
    json_decref(number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_shape),
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(finds_the_class),
    };
    return cmocka_run_group_tests_name("pair", tests, NULL, NULL);
}
