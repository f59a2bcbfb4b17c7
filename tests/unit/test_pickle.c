/* pickle.c and pickle_vm.c: programs written by hand, and what each is refused for. */
#include "base/mem.h"
#include "format/pickle.h"
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct seen {
    size_t n;
    pickle_tensor last;
    char names[64];
} seen;

static pesc_status note(void *ctx, const pickle_tensor *t)
{
    seen *s = ctx;
    s->n++;
    s->last = *t;
    size_t used = strlen(s->names);
    snprintf(s->names + used, sizeof s->names - used, "%.*s ", (int)t->name_bytes, t->name);
    return PESC_OK;
}

static pesc_status run(const char *code, size_t n, seen *s)
{
    *s = (seen){ 0 };
    /* a copy of exactly n bytes, so that a sanitizer sees a read past the end */
    unsigned char *copy = malloc(n);
    memcpy(copy, code, n);
    pesc_status st = pickle_tensors("m.bin", copy, n, note, s);
    s->last.name = s->last.key = NULL;
    free(copy);
    return st;
}

/* Pieces of programs. */
#define DICT "ccollections\nOrderedDict\n)R"
#define STR(n, s) "X" n "\0\0\0" s
#define STORAGE(type, elements)                                                                    \
    "(" STR("\7", "storage") "ctorch\n" type "\n" STR("\1", "0") STR("\3", "cpu") "K" elements "t" \
                                                                                  "Q"
#define TENSOR(storage, offset, size, stride)                                                      \
    "ctorch._utils\n_rebuild_tensor_v2\n(" storage "K" offset size stride "\x89" DICT "tR"
#define PAIR(a, b) "K" a "K" b "\x86"
#define PLAIN TENSOR(STORAGE("FloatStorage", "\6"), "\0", PAIR("\2", "\3"), PAIR("\3", "\1"))
#define ENTRY(name, value) "}" STR("\1", name) value "s."

#define PROGRAM(text) text, sizeof text - 1

static void test_reads_tensors(void **state)
{
    seen s;
    (void)state;
    must(run(PROGRAM("\x80\2" ENTRY("a", PLAIN)), &s));
    assert_int_equal(s.n, 1);
    assert_true(s.last.dt == DT_F32 && s.last.storage_elements == 6 && s.last.offset == 0);
    assert_true(s.last.nd == 2 && s.last.ne[0] == 2 && s.last.ne[1] == 3 && s.last.stride[0] == 3);
    must(run(PROGRAM("\x80\2" DICT "(" STR("\1", "a") PLAIN STR("\1", "b") PLAIN "u."), &s));
    assert_string_equal(s.names, "a b ");
    /* protocol 4: frames, short strings, memoize, names from the stack */
    must(run(PROGRAM("\x80\4\x95\0\0\0\0\0\0\0\0}\x94\x8c\1x\x8c\x0ctorch._utils\x8c\x12_rebuild_"
                     "tensor_v2\x93"
                     "(" STORAGE("BFloat16Storage", "\4") "K\1K\2\x85K\1\x85\x89" DICT "tRs."),
             &s));
    assert_true(s.last.dt == DT_BF16 && s.last.offset == 1 && s.last.nd == 1 && s.last.ne[0] == 2);
    /* a parameter; attributes that are ignored */
    must(run(PROGRAM("\x80\2" DICT STR("\1", "p") "ctorch._utils\n_rebuild_parameter\n" PLAIN
                                                  "\x88" DICT "\x87Rs}" STR("\1", "m") "]K\1as"
                                                                                       "b."),
             &s));
    assert_int_equal(s.n, 1);
    must(run(PROGRAM("}."), &s));
    assert_int_equal(s.n, 0);
    must(run(PROGRAM(ENTRY("l", TENSOR(STORAGE("LongStorage", "\1"), "\0", ")", ")"))), &s));
    assert_true(s.last.nd == 0 && s.last.dt == DT_I64);
}

static void test_reads_long_numbers(void **state)
{
    static const struct {
        const char *code;
        size_t n;
        int64_t value;
    } rows[] = {
        { PROGRAM("\x8a\0"), 0 },
        { PROGRAM("\x8a\1\x7f"), 127 },
        { PROGRAM("\x8a\5\0\0\0\0\1"), 1LL << 32 },
        { PROGRAM("J\xff\xff\xff\x7f"), INT32_MAX },
        { PROGRAM("M\xff\xff"), 65535 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char code[512];
        size_t n = 0;
        static const char head[] =
            "}" STR("\1", "a") "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE("FloatStorage", "\1");
        static const char tail[] = "))\x89" DICT "tRs.";
        memcpy(code, head, sizeof head - 1);
        n = sizeof head - 1;
        memcpy(code + n, rows[i].code, rows[i].n);
        n += rows[i].n;
        memcpy(code + n, tail, sizeof tail - 1);
        seen s;
        must(run(code, n + sizeof tail - 1, &s));
        assert_true(s.last.offset == rows[i].value);
    }
}

static const struct {
    const char *code;
    size_t n;
    pesc_status status;
    const char *part;
} refused[] = {
    { PROGRAM("cos\nsystem\nX\2\0\0\0id\x85R."), PESC_UNSUPPORTED,
      "byte 0: asks for os.system; pesc" },
    { PROGRAM("cposix\nsystem\n."), PESC_UNSUPPORTED, "asks for posix.system" },
    { PROGRAM("cbuiltins\neval\n."), PESC_UNSUPPORTED, "asks for builtins.eval" },
    { PROGRAM("ctorch\nload\n."), PESC_UNSUPPORTED, "asks for torch.load" },
    { PROGRAM("ctorch._utils\n_rebuild_tensor_v3\n."), PESC_UNSUPPORTED, "_rebuild_tensor_v3" },
    { PROGRAM("\x8c\2os\x8c\6system\x93."), PESC_UNSUPPORTED, "asks for os.system" },
    { PROGRAM("(ios\nsystem\n."), PESC_UNSUPPORTED, "instruction 0x69" },
    { PROGRAM("(cos\n"), PESC_FORMAT, "ends inside an instruction" },
    { PROGRAM("\x81."), PESC_UNSUPPORTED, "instruction 0x81" },
    { PROGRAM("\x82\1."), PESC_UNSUPPORTED, "instruction 0x82" },
    { PROGRAM("C\1x."), PESC_UNSUPPORTED, "instruction 0x43" },
    { PROGRAM(""), PESC_FORMAT, "byte 0: the pickle ends" },
    { PROGRAM("}"), PESC_FORMAT, "byte 1: the pickle ends" },
    { PROGRAM("."), PESC_FORMAT, "takes a value from an empty stack" },
    { PROGRAM("\x80\6}."), PESC_FORMAT, "pickle protocol 6" },
    { PROGRAM("K\1."), PESC_FORMAT, "holds a number, expected a dictionary" },
    { PROGRAM("]."), PESC_FORMAT, "holds a list, expected a dictionary" },
    { PROGRAM("}K\1K\2s."), PESC_FORMAT, "a key of the dictionary is a number" },
    { PROGRAM("}X\1\0\0\0aK\2s."), PESC_FORMAT, "entry a is a number, expected a tensor" },
    { PROGRAM("}X\1\0\0\0a}s."), PESC_FORMAT, "entry a is a dictionary, expected a tensor" },
    { PROGRAM("}q\1X\1\0\0\0ah\1s."), PESC_FORMAT, "entry a is a dictionary" }, /* itself */
    { PROGRAM("}h\1."), PESC_FORMAT, "value number 1, which was never remembered" },
    { PROGRAM("q\1."), PESC_FORMAT, "remembers a value of an empty stack" },
    { PROGRAM("}r\xff\xff\xff\xff."), PESC_FORMAT, "under number 4294967295" },
    { PROGRAM("}q\5j\4\0\0\0."), PESC_FORMAT, "never remembered" },
    { PROGRAM("s."), PESC_FORMAT, "empty stack" },
    { PROGRAM("u."), PESC_FORMAT, "no mark" },
    { PROGRAM("t."), PESC_FORMAT, "no mark" },
    { PROGRAM("e."), PESC_FORMAT, "no mark" },
    { PROGRAM("(u."), PESC_FORMAT, "empty stack" },
    { PROGRAM("}(K\1u."), PESC_FORMAT, "a key without a value" },
    { PROGRAM("](K\1K\2u."), PESC_FORMAT, "adds to a list as if it were a dictionary" },
    { PROGRAM("}K\1a."), PESC_FORMAT, "adds to a dictionary as if it were a list" },
    { PROGRAM("}(K\1."), PESC_FORMAT, "holds a number" },
    { PROGRAM("}(."), PESC_FORMAT, "empty stack" },
    { PROGRAM("}(\x85."), PESC_FORMAT, "empty stack" },
    { PROGRAM("K\1\x86."), PESC_FORMAT, "empty stack" },
    { PROGRAM("K\1)R."), PESC_FORMAT, "calls a number with a tuple" },
    { PROGRAM("ctorch\nFloatStorage\n)R."), PESC_FORMAT, "calls torch.FloatStorage" },
    { PROGRAM("ccollections\nOrderedDict\nK\1\x85R."), PESC_FORMAT, "OrderedDict with arguments" },
    { PROGRAM("ccollections\nOrderedDict\nK\1R."), PESC_FORMAT,
      "calls a function name with a number" },
    { PROGRAM("ctorch._utils\n_rebuild_parameter\n)R."), PESC_FORMAT, "not a tensor" },
    { PROGRAM("ctorch._utils\n_rebuild_tensor_v2\n)R."), PESC_FORMAT, "not described by storage" },
    { PROGRAM("K\1Q."), PESC_FORMAT, "names a storage by a number" },
    { PROGRAM("(K\1K\1K\1K\1K\1tQ."), PESC_FORMAT, "the description of a storage is not" },
    { PROGRAM("(" STR("\7", "storage") "ccollections\nOrderedDict\n" STR("\1", "0")
                  STR("\3", "cpu") "K\1tQ."),
      PESC_FORMAT, "the description of a storage is not" },
    { PROGRAM("}K\1b."), PESC_FORMAT, "attributes of an object from a number" },
    { PROGRAM("]}b."), PESC_FORMAT, "adds to a list as if it were a dictionary" },
    { PROGRAM("X\xff\xff\xff\xff"
              "a."),
      PESC_FORMAT, "ends inside an instruction" },
    { PROGRAM("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), PESC_FORMAT, "found a string of" },
    { PROGRAM("X\2\0\0\0\xc0\x80."), PESC_FORMAT, "not valid UTF-8" },
    { PROGRAM("\x8a\x09\0\0\0\0\0\0\0\0\0."), PESC_FORMAT, "a number of 9 bytes" },
    { PROGRAM(ENTRY("a", TENSOR(STORAGE("FloatStorage", "\6"), "\0", PAIR("\2", "\3"), "K\1\x85"))),
      PESC_FORMAT, "not described by storage, offset, size and stride" },
    { PROGRAM(ENTRY(
          "a", TENSOR(STORAGE("FloatStorage", "\6"), "\0", "J\xff\xff\xff\xff\x85", "K\1\x85"))),
      PESC_FORMAT, "not described by storage" },
    { PROGRAM(ENTRY("a", TENSOR(STORAGE("FloatStorage", "\6"), "\0",
                                "(K\1K\1K\1K\1K\1K\1K\1K\1K\1t", "(K\1K\1K\1K\1K\1K\1K\1K\1K\1t"))),
      PESC_FORMAT, "not described by storage" },
};

static void test_refuses(void **state)
{
    seen s;
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        must_fail(run(refused[i].code, refused[i].n, &s), refused[i].status, refused[i].part);
}

/* Small programs that would make much: each array has its limit. */
static void test_limits_what_is_kept(void **state)
{
    enum { N = 8 << 20 };
    static const char *const loops[] = { "]", "(", "N", "K\1", "N2" };
    char *code = malloc(N);
    seen s;
    (void)state;
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
        size_t n = strlen(loops[i]);
        for (size_t at = 0; at + n <= N; at += n)
            memcpy(code + at, loops[i], n);
        pesc_status st = run(code, N - N % n, &s);
        assert_true(st == PESC_FORMAT || st == PESC_UNSUPPORTED);
    }
    free(code);
}

static void test_bears_cuts_and_flips(void **state)
{
    static const char code[] = "\x80\2" ENTRY("a", PLAIN);
    char copy[sizeof code];
    seen s;
    (void)state;
    for (size_t n = 0; n < sizeof code - 1; n++)
        assert_int_equal(pesc_status_exit_code(run(code, n, &s)), 3);
    for (size_t bit = 0; bit < (sizeof code - 1) * 8; bit++) {
        memcpy(copy, code, sizeof code);
        copy[bit / 8] ^= (char)(1 << bit % 8);
        pesc_status st = run(copy, sizeof code - 1, &s);
        assert_true(st == PESC_OK || pesc_status_exit_code(st) == 3);
    }
    for (uint64_t n = 1;; n++) {
        mem_fail_at(n);
        pesc_status st = run(code, sizeof code - 1, &s);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        if (!fired)
            break;
        assert_int_equal(st, PESC_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_tensors),
        cmocka_unit_test(test_reads_long_numbers),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_limits_what_is_kept),
        cmocka_unit_test(test_bears_cuts_and_flips),
    };
    return cmocka_run_group_tests_name("pickle", tests, NULL, NULL);
}
