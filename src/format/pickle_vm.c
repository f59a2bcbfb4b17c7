#include "format/pickle_vm.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "format/weights.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_VALUES = 1 << 21,
    MAX_PAIRS = 1 << 19,
    MAX_PROTOCOL = 5,
    STORAGE_FIELDS = 5, /* ("storage", type, key, location, elements) */
};

const char *const pickle_kind_names[] = {
    "None",   "a boolean",    "a number",        "a number",  "a string", "a tuple",
    "a list", "a dictionary", "a function name", "a storage", "a tensor",
};

const pickle_global pickle_globals[] = {
    { "collections", "OrderedDict", R_DICT, 0 },
    { "torch._utils", "_rebuild_tensor_v2", R_TENSOR, 0 },
    { "torch._utils", "_rebuild_parameter", R_PARAMETER, 0 },
    { "torch", "FloatStorage", R_STORAGE, DT_F32 },
    { "torch", "BFloat16Storage", R_STORAGE, DT_BF16 },
    { "torch", "HalfStorage", R_STORAGE, DT_F16 },
    { "torch", "DoubleStorage", R_STORAGE, DT_F64 },
    { "torch", "LongStorage", R_STORAGE, DT_I64 },
    { "torch", "IntStorage", R_STORAGE, DT_I32 },
    { "torch", "ShortStorage", R_STORAGE, DT_I16 },
    { "torch", "CharStorage", R_STORAGE, DT_I8 },
    { "torch", "ByteStorage", R_STORAGE, DT_U8 },
    { "torch", "BoolStorage", R_STORAGE, DT_BOOL },
};

enum { N_GLOBALS = sizeof pickle_globals / sizeof *pickle_globals };

pesc_status pickle_bad(const machine *m, const char *fmt, ...)
{
    char reason[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    return fail(PESC_FORMAT, "%s: data.pkl: byte %zu: %s", m->file, m->op_at, reason);
}

/* ---- storage of the machine ---- */

static pesc_status append(machine *m, array *a, const void *element)
{
    if (a->n == a->limit)
        return pickle_bad(m, "the pickle holds more than %zu values", a->limit);
    if (!mem_room(&a->p, &a->cap, a->n, a->size))
        return fail_nomem(m->file, 2 * a->cap * a->size);
    memcpy((char *)a->p + a->n++ * a->size, element, a->size);
    return PESC_OK;
}

static uint32_t *u32s(const array *a)
{
    return a->p;
}

static pesc_status push_number(machine *m, uint32_t number)
{
    return append(m, &m->stack, &number);
}

static pesc_status push(machine *m, value v)
{
    TRY(append(m, &m->values, &v));
    return push_number(m, (uint32_t)m->values.n - 1);
}

/* The stack's floor: nothing below the last mark may be taken without taking the mark. */
static size_t floor_of(const machine *m)
{
    return m->marks.n ? u32s(&m->marks)[m->marks.n - 1] : 0;
}

static pesc_status pop(machine *m, uint32_t *number)
{
    if (m->stack.n <= floor_of(m))
        return pickle_bad(m, "takes a value from an empty stack");
    *number = u32s(&m->stack)[--m->stack.n];
    return PESC_OK;
}

static pesc_status pop_mark(machine *m, size_t *height)
{
    if (m->marks.n == 0)
        return pickle_bad(m, "there is no mark on the stack");
    *height = u32s(&m->marks)[--m->marks.n];
    return PESC_OK;
}

static pesc_status take_bytes(machine *m, size_t n, const unsigned char **p)
{
    if (n > m->n - m->at)
        return pickle_bad(m, "the pickle ends inside an instruction");
    *p = m->code + m->at;
    m->at += n;
    return PESC_OK;
}

static pesc_status take_little(machine *m, int bytes, uint64_t *out)
{
    const unsigned char *p = NULL;
    TRY(take_bytes(m, (size_t)bytes, &p));
    *out = 0;
    while (bytes-- > 0)
        *out = *out << 8 | p[bytes];
    return PESC_OK;
}

/* ---- instructions ---- */

static pesc_status op_proto(machine *m, int arg)
{
    uint64_t version;
    (void)arg;
    TRY(take_little(m, 1, &version));
    if (version > MAX_PROTOCOL)
        return pickle_bad(m, "found pickle protocol %llu, expected at most %d",
                          (unsigned long long)version, MAX_PROTOCOL);
    return PESC_OK;
}

static pesc_status op_frame(machine *m, int arg)
{
    uint64_t bytes;
    return take_little(m, arg, &bytes);
}

static pesc_status op_stop(machine *m, int arg)
{
    (void)arg;
    m->stopped = true;
    return PESC_OK;
}

/* An empty container or None. */
static pesc_status op_empty(machine *m, int arg)
{
    return push(m, (value){ .kind = (uint32_t)arg });
}

static pesc_status op_bool(machine *m, int arg)
{
    return push(m, (value){ .kind = K_BOOL, .b = (uint64_t)arg });
}

/* An unsigned number of `arg` bytes; negative: signed. */
static pesc_status op_int(machine *m, int arg)
{
    uint64_t v;
    TRY(take_little(m, arg < 0 ? -arg : arg, &v));
    if (arg < 0)
        v = (uint64_t)(int64_t)(int32_t)(uint32_t)v;
    return push(m, (value){ .kind = K_INT, .b = v });
}

static pesc_status op_long(machine *m, int arg)
{
    uint64_t bytes, v = 0;
    (void)arg;
    TRY(take_little(m, 1, &bytes));
    if (bytes > 8)
        return pickle_bad(m, "found a number of %llu bytes, expected at most 8",
                          (unsigned long long)bytes);
    TRY(take_little(m, (int)bytes, &v));
    if (bytes > 0 && bytes < 8 && v >> (bytes * 8 - 1))
        v |= ~(uint64_t)0 << (bytes * 8);
    return push(m, (value){ .kind = K_INT, .b = v });
}

static pesc_status op_float(machine *m, int arg)
{
    uint64_t bits;
    TRY(take_little(m, arg, &bits));
    return push(m, (value){ .kind = K_FLOAT });
}

static pesc_status op_string(machine *m, int arg)
{
    uint64_t bytes;
    const unsigned char *p = NULL;
    TRY(take_little(m, arg, &bytes));
    if (bytes > UINT32_MAX)
        return pickle_bad(m, "found a string of %llu bytes", (unsigned long long)bytes);
    TRY(take_bytes(m, (size_t)bytes, &p));
    if (!utf8_valid((const char *)p, (size_t)bytes))
        return pickle_bad(m, "found a string that is not valid UTF-8");
    return push(m, (value){ K_STRING, (uint32_t)bytes, (uint64_t)(p - m->code) });
}

static pesc_status op_mark(machine *m, int arg)
{
    (void)arg;
    uint32_t height = (uint32_t)m->stack.n;
    return append(m, &m->marks, &height);
}

static pesc_status make_tuple(machine *m, size_t n)
{
    value v = { K_TUPLE, (uint32_t)n, m->items.n };
    for (size_t i = m->stack.n - n; i < m->stack.n; i++)
        TRY(append(m, &m->items, &u32s(&m->stack)[i]));
    m->stack.n -= n;
    return push(m, v);
}

/* A tuple of the top `arg` values; 0: of all above the mark. */
static pesc_status op_tuple(machine *m, int arg)
{
    size_t n = (size_t)arg, height = 0;
    if (arg == 0) {
        TRY(pop_mark(m, &height));
        n = m->stack.n - height;
    } else if (m->stack.n - floor_of(m) < n) {
        return pickle_bad(m, "takes a value from an empty stack");
    }
    return make_tuple(m, n);
}

static pesc_status memo_put(machine *m, uint64_t index)
{
    if (m->stack.n <= floor_of(m))
        return pickle_bad(m, "remembers a value of an empty stack");
    if (index >= m->memo.limit)
        return pickle_bad(m, "remembers a value under number %llu, expected less than %zu",
                          (unsigned long long)index, m->memo.limit);
    uint32_t none = 0, number = u32s(&m->stack)[m->stack.n - 1] + 1;
    while (m->memo.n <= index)
        TRY(append(m, &m->memo, &none));
    u32s(&m->memo)[index] = number;
    return PESC_OK;
}

static pesc_status op_put(machine *m, int arg)
{
    uint64_t index;
    TRY(take_little(m, arg, &index));
    return memo_put(m, index);
}

static pesc_status op_memoize(machine *m, int arg)
{
    (void)arg;
    return memo_put(m, m->memo.n);
}

static pesc_status op_get(machine *m, int arg)
{
    uint64_t index;
    TRY(take_little(m, arg, &index));
    if (index >= m->memo.n || u32s(&m->memo)[index] == 0)
        return pickle_bad(m, "asks for value number %llu, which was never remembered",
                          (unsigned long long)index);
    return push_number(m, u32s(&m->memo)[index] - 1);
}

/* ---- names ---- */

static bool same(const char *text, const unsigned char *p, size_t n)
{
    return strlen(text) == n && memcmp(text, p, n) == 0;
}

static pesc_status push_global(machine *m, const unsigned char *module, size_t n_module,
                               const unsigned char *name, size_t n_name)
{
    enum { SHOWN = 100 };
    for (size_t i = 0; i < N_GLOBALS; i++)
        if (same(pickle_globals[i].module, module, n_module) &&
            same(pickle_globals[i].name, name, n_name))
            return push(m, (value){ .kind = K_GLOBAL, .a = (uint32_t)i });
    return fail(PESC_UNSUPPORTED,
                "%s: data.pkl: byte %zu: asks for %.*s.%.*s; pesc reads tensors only and runs "
                "nothing from a file",
                m->file, m->op_at, (int)(n_module < SHOWN ? n_module : SHOWN), (const char *)module,
                (int)(n_name < SHOWN ? n_name : SHOWN), (const char *)name);
}

static pesc_status take_line(machine *m, const unsigned char **p, size_t *n)
{
    *p = m->code + m->at;
    const unsigned char *end = memchr(*p, '\n', m->n - m->at);
    if (!end)
        return pickle_bad(m, "the pickle ends inside an instruction");
    *n = (size_t)(end - *p);
    m->at += *n + 1;
    return PESC_OK;
}

static pesc_status op_global(machine *m, int arg)
{
    const unsigned char *module = NULL, *name = NULL;
    size_t n_module = 0, n_name = 0;
    (void)arg;
    TRY(take_line(m, &module, &n_module));
    TRY(take_line(m, &name, &n_name));
    return push_global(m, module, n_module, name, n_name);
}

static pesc_status op_stack_global(machine *m, int arg)
{
    uint32_t module = 0, name = 0;
    (void)arg;
    TRY(pop(m, &name));
    TRY(pop(m, &module));
    const value *x = pickle_value(m, module), *y = pickle_value(m, name);
    if (x->kind != K_STRING || y->kind != K_STRING)
        return pickle_bad(m, "names a function by %s",
                          pickle_kind_names[x->kind != K_STRING ? x->kind : y->kind]);
    return push_global(m, m->code + x->b, x->a, m->code + y->b, y->a);
}

/* ---- containers and calls ---- */

static pesc_status set_item(machine *m, uint32_t dict, uint32_t key, uint32_t item)
{
    pair p = { key, item, 0 };
    TRY(append(m, &m->pairs, &p));
    value *d = pickle_value(m, dict);
    uint32_t number = (uint32_t)m->pairs.n;
    if (d->a == 0)
        d->a = number;
    else
        ((pair *)m->pairs.p)[d->b - 1].next = number;
    d->b = number;
    return PESC_OK;
}

/* What an append or set instruction changes: the value below its operands. */
static pesc_status target(machine *m, size_t height, kind wanted, uint32_t *out)
{
    if (height <= floor_of(m))
        return pickle_bad(m, "takes a value from an empty stack");
    *out = u32s(&m->stack)[height - 1];
    if (pickle_value(m, *out)->kind != (uint32_t)wanted)
        return pickle_bad(m, "adds to %s as if it were %s",
                          pickle_kind_names[pickle_value(m, *out)->kind],
                          pickle_kind_names[wanted]);
    return PESC_OK;
}

/* Items of a dictionary: `arg` values, or all above the mark when it is 0. */
static pesc_status op_set(machine *m, int arg)
{
    size_t height = m->stack.n - (size_t)arg;
    if (arg == 0)
        TRY(pop_mark(m, &height));
    else if (m->stack.n - floor_of(m) < (size_t)arg)
        return pickle_bad(m, "takes a value from an empty stack");
    uint32_t dict;
    TRY(target(m, height, K_DICT, &dict));
    if ((m->stack.n - height) % 2)
        return pickle_bad(m, "sets a key without a value");
    for (size_t i = height; i < m->stack.n; i += 2)
        TRY(set_item(m, dict, u32s(&m->stack)[i], u32s(&m->stack)[i + 1]));
    m->stack.n = height;
    return PESC_OK;
}

/* Lists occur only beside the tensors (hooks, versions): their members are forgotten. */
static pesc_status op_append(machine *m, int arg)
{
    size_t height = m->stack.n - (size_t)arg;
    uint32_t list;
    if (arg == 0)
        TRY(pop_mark(m, &height));
    else if (m->stack.n - floor_of(m) < (size_t)arg)
        return pickle_bad(m, "takes a value from an empty stack");
    TRY(target(m, height, K_LIST, &list));
    m->stack.n = height;
    return PESC_OK;
}

/* An object's attributes (OrderedDict's _metadata): not needed. */
static pesc_status op_build(machine *m, int arg)
{
    uint32_t state = 0, object = 0;
    (void)arg;
    TRY(pop(m, &state));
    TRY(target(m, m->stack.n, K_DICT, &object));
    if (pickle_value(m, state)->kind != K_DICT)
        return pickle_bad(m, "sets the attributes of an object from %s",
                          pickle_kind_names[pickle_value(m, state)->kind]);
    return PESC_OK;
}

static pesc_status op_persistent(machine *m, int arg)
{
    uint32_t id;
    (void)arg;
    TRY(pop(m, &id));
    const value *t = pickle_value(m, id);
    if (t->kind != K_TUPLE || t->a != STORAGE_FIELDS)
        return pickle_bad(m, "names a storage by %s", pickle_kind_names[t->kind]);
    const value *tag = pickle_member(m, t, 0), *type = pickle_member(m, t, 1);
    if (tag->kind != K_STRING || !same("storage", m->code + tag->b, tag->a) ||
        type->kind != K_GLOBAL || pickle_globals[type->a].role != R_STORAGE ||
        pickle_member(m, t, 2)->kind != K_STRING || pickle_member(m, t, 4)->kind != K_INT)
        return pickle_bad(
            m, "the description of a storage is not (\"storage\", type, key, location, size)");
    return push(m, (value){ .kind = K_STORAGE, .a = id });
}

static bool whole_numbers(const machine *m, const value *t)
{
    if (t->kind != K_TUPLE || t->a > WEIGHTS_MAX_DIMS)
        return false;
    for (size_t i = 0; i < t->a; i++)
        if (pickle_member(m, t, i)->kind != K_INT || (int64_t)pickle_member(m, t, i)->b < 0)
            return false;
    return true;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, metadata]) */
static pesc_status rebuild_tensor(machine *m, uint32_t args)
{
    const value *t = pickle_value(m, args);
    if (t->a < 6 || pickle_member(m, t, 0)->kind != K_STORAGE ||
        pickle_member(m, t, 1)->kind != K_INT || (int64_t)pickle_member(m, t, 1)->b < 0 ||
        !whole_numbers(m, pickle_member(m, t, 2)) || !whole_numbers(m, pickle_member(m, t, 3)) ||
        pickle_member(m, t, 2)->a != pickle_member(m, t, 3)->a)
        return pickle_bad(m, "a tensor is not described by storage, offset, size and stride");
    return push(m, (value){ .kind = K_TENSOR, .a = args });
}

static pesc_status op_reduce(machine *m, int arg)
{
    uint32_t args = 0, callable = 0;
    (void)arg;
    TRY(pop(m, &args));
    TRY(pop(m, &callable));
    const value *c = pickle_value(m, callable), *t = pickle_value(m, args);
    if (c->kind != K_GLOBAL || t->kind != K_TUPLE)
        return pickle_bad(m, "calls %s with %s", pickle_kind_names[c->kind],
                          pickle_kind_names[t->kind]);
    switch (pickle_globals[c->a].role) {
    case R_DICT:
        if (t->a != 0)
            return pickle_bad(m, "makes an OrderedDict with arguments, expected none");
        return push(m, (value){ .kind = K_DICT });
    case R_TENSOR:
        return rebuild_tensor(m, args);
    case R_PARAMETER:
        if (t->a == 0 || pickle_member(m, t, 0)->kind != K_TENSOR)
            return pickle_bad(m, "makes a parameter of something that is not a tensor");
        return push_number(m, u32s(&m->items)[t->b]);
    case R_STORAGE:
        break;
    }
    return pickle_bad(m, "calls %s.%s", pickle_globals[c->a].module, pickle_globals[c->a].name);
}

static const struct {
    pesc_status (*run)(machine *m, int arg);
    int arg;
} ops[256] = {
    [0x80] = { op_proto, 0 },      [0x95] = { op_frame, 8 },        ['.'] = { op_stop, 0 },
    ['N'] = { op_empty, K_NONE },  ['}'] = { op_empty, K_DICT },    [']'] = { op_empty, K_LIST },
    [')'] = { op_empty, K_TUPLE }, [0x88] = { op_bool, 1 },         [0x89] = { op_bool, 0 },
    ['K'] = { op_int, 1 },         ['M'] = { op_int, 2 },           ['J'] = { op_int, -4 },
    [0x8A] = { op_long, 0 },       ['G'] = { op_float, 8 },         ['X'] = { op_string, 4 },
    [0x8C] = { op_string, 1 },     [0x8D] = { op_string, 8 },       ['('] = { op_mark, 0 },
    ['t'] = { op_tuple, 0 },       [0x85] = { op_tuple, 1 },        [0x86] = { op_tuple, 2 },
    [0x87] = { op_tuple, 3 },      ['q'] = { op_put, 1 },           ['r'] = { op_put, 4 },
    [0x94] = { op_memoize, 0 },    ['h'] = { op_get, 1 },           ['j'] = { op_get, 4 },
    ['c'] = { op_global, 0 },      [0x93] = { op_stack_global, 0 }, ['s'] = { op_set, 2 },
    ['u'] = { op_set, 0 },         ['a'] = { op_append, 1 },        ['e'] = { op_append, 0 },
    ['b'] = { op_build, 0 },       ['Q'] = { op_persistent, 0 },    ['R'] = { op_reduce, 0 },
};

void pickle_begin(machine *m, const char *file, const unsigned char *code, size_t n)
{
    *m = (machine){
        .file = file,
        .code = code,
        .n = n,
        .values = { .limit = MAX_VALUES, .size = sizeof(value) },
        .stack = { .limit = MAX_VALUES / 2, .size = sizeof(uint32_t) },
        .marks = { .limit = MAX_VALUES / 4, .size = sizeof(uint32_t) },
        .memo = { .limit = MAX_VALUES, .size = sizeof(uint32_t) },
        .items = { .limit = MAX_VALUES, .size = sizeof(uint32_t) },
        .pairs = { .limit = MAX_PAIRS, .size = sizeof(pair) },
    };
}

void pickle_end(machine *m)
{
    array *all[] = { &m->values, &m->stack, &m->marks, &m->memo, &m->items, &m->pairs };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]->p);
}

pesc_status pickle_run(machine *m, uint32_t *result)
{
    while (!m->stopped) {
        const unsigned char *op = NULL;
        m->op_at = m->at;
        TRY(take_bytes(m, 1, &op));
        if (!ops[*op].run)
            return fail(PESC_UNSUPPORTED,
                        "%s: data.pkl: byte %zu: found pickle instruction 0x%02X, which a "
                        "dictionary of tensors does not need",
                        m->file, m->op_at, *op);
        TRY(ops[*op].run(m, ops[*op].arg));
    }
    return pop(m, result);
}
