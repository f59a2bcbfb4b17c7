/* libFuzzer: any JSON as a config.json, through reading, counting and rotation. A configuration
 * that is accepted must be usable: every layer, slot and frequency is asked for. */
#include "arch/family.h"
#include "arch/info.h"
#include "arch/rope_freq.h"
#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const config *c)
{
    info_counts counts;
    size_t half = (size_t)config_rot_dim(c) / 2;
    float *f = mem_alloc(half, sizeof *f);
    (void)info_count(c, "config.json", &counts);
    if (f)
        rope_frequencies(c, 2 * (int64_t)c->context, f);
    mem_free(f);
    for (int32_t i = 0; i < c->n_layers; i++)
        ASSERT(config_layer_window(c, i) >= 0 && family_facts(c, i));
    ASSERT(rope_table_scale(c) > 0 || c->rope == ROPE_YARN);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *o = NULL;
    config c;
    if (json_parse(&o, (const char *)data, size, "config.json") != PESC_OK)
        return 0;
    config_source src = { .json = o, .file = "config.json" };
    if (json_is_object(o))
        src.generation = json_object_get(o, "generation");
    if (config_read(&c, &src) == PESC_OK) {
        use(&c);
        config_free(&c);
    }
    json_decref(o);
    return 0;
}
