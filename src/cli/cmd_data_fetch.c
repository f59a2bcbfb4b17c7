/* `pesc data fetch`: where the data of benchmarks, of the papers and of the studies is published,
 * under which licence, and the command that fetches it into the place where pesc looks for it.
 * Nothing is fetched here. */
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

#define TO_JSON "python3 -c \"from datasets import load_dataset as load; "
#define ALL_SPLITS(place, source)                                                                  \
    TO_JSON "[d.to_json('" place "/' + s + '.jsonl') for s, d in load(" source ").items()]\""
#define TRAIN(file, source) TO_JSON "load(" source ", split='train').to_json('" file "')\""
#define MATH                                                                                       \
    TO_JSON "from datasets import concatenate_datasets as join; names = ['algebra', "              \
            "'counting_and_probability', 'geometry', 'intermediate_algebra', 'number_theory', "    \
            "'prealgebra', 'precalculus']; [join([load('EleutherAI/hendrycks_math', n)[s] for n "  \
            "in names]).to_json('bench/math/' + s + '.jsonl') for s in ('train', 'test')]\""
#define ESFT "git clone --depth 1 https://github.com/deepseek-ai/ESFT"

/* Licences are those that the publishers state; a user checks them before using the data. */
static const struct data_set {
    const char *name, *used, *source, *licence, *command;
} sets[] = {
    { "arc_easy", "eval", "allenai/ai2_arc (ARC-Easy)", "CC-BY-SA-4.0",
      ALL_SPLITS("bench/arc_easy", "'allenai/ai2_arc', 'ARC-Easy'") },
    { "arc_challenge", "eval", "allenai/ai2_arc (ARC-Challenge)", "CC-BY-SA-4.0",
      ALL_SPLITS("bench/arc_challenge", "'allenai/ai2_arc', 'ARC-Challenge'") },
    { "gsm8k", "eval: gsm8k, gsm8k_cot; smol, qwen", "openai/gsm8k (main)", "MIT",
      ALL_SPLITS("bench/gsm8k", "'openai/gsm8k', 'main'") },
    { "hellaswag", "eval", "Rowan/hellaswag", "MIT",
      ALL_SPLITS("bench/hellaswag", "'Rowan/hellaswag'") },
    { "humaneval", "eval", "openai/openai_humaneval", "MIT",
      ALL_SPLITS("bench/humaneval", "'openai/openai_humaneval'") },
    { "math", "eval: hendrycks_math, minerva_math; smol, qwen", "EleutherAI/hendrycks_math", "MIT",
      MATH },
    { "mbpp", "eval", "google-research-datasets/mbpp (full)", "CC-BY-4.0",
      ALL_SPLITS("bench/mbpp", "'google-research-datasets/mbpp', 'full'") },
    { "mmlu", "eval", "cais/mmlu (all)", "MIT", ALL_SPLITS("bench/mmlu", "'cais/mmlu', 'all'") },
    { "nq_open", "eval", "google-research-datasets/nq_open", "CC-BY-SA-3.0",
      ALL_SPLITS("bench/nq_open", "'google-research-datasets/nq_open'") },
    { "piqa", "eval", "baber/piqa (of ybisk/piqa)", "AFL-3.0",
      ALL_SPLITS("bench/piqa", "'baber/piqa'") },
    { "triviaqa", "eval", "mandarjoshi/trivia_qa (rc.nocontext)", "not stated by the publisher",
      ALL_SPLITS("bench/triviaqa", "'mandarjoshi/trivia_qa', 'rc.nocontext'") },
    { "winogrande", "eval", "allenai/winogrande (winogrande_xl)", "CC-BY",
      ALL_SPLITS("bench/winogrande", "'allenai/winogrande', 'winogrande_xl'") },
    { "esft-eval", "eval: esft", "github.com/deepseek-ai/ESFT (datasets/eval)", "MIT",
      ESFT " && mkdir -p bench && cp -r ESFT/datasets/eval bench/esft" },
    { "esft-train", "studies esft-smol, qwen", "github.com/deepseek-ai/ESFT (datasets/train)",
      "MIT", ESFT " && mkdir -p instruct/esft && cp -r ESFT/datasets/train instruct/esft/train" },
    { "alpaca", "studies gpu, smol, qwen", "tatsu-lab/alpaca", "CC-BY-NC-4.0",
      TRAIN("instruct/alpaca/alpaca_union.jsonl", "'tatsu-lab/alpaca'") },
    { "dolly", "studies gpu, smol, qwen", "databricks/databricks-dolly-15k", "CC-BY-SA-3.0",
      TRAIN("instruct/dolly/dolly-15k.merged.jsonl", "'databricks/databricks-dolly-15k'") },
    { "evol-code", "studies gpu, smol, qwen", "theblackcat102/evol-codealpaca-v1", "Apache-2.0",
      TRAIN("instruct/evol-code/train.jsonl", "'theblackcat102/evol-codealpaca-v1'") },
    { "gpteacher", "studies gpu, smol, qwen", "github.com/teknium1/GPTeacher (Codegen)", "MIT",
      "git clone --depth 1 https://github.com/teknium1/GPTeacher && mkdir -p instruct/gpteacher && "
      "cp GPTeacher/Codegen/codegen-instruct.json instruct/gpteacher/" },
    { "slimorca", "the paper's IDAE-500K: general", "Open-Orca/SlimOrca", "MIT",
      TRAIN("instruct/slimorca.jsonl", "'Open-Orca/SlimOrca'") },
    { "magicoder", "the paper's IDAE-500K: code", "ise-uiuc/Magicoder-OSS-Instruct-75K", "MIT",
      TRAIN("instruct/magicoder.jsonl", "'ise-uiuc/Magicoder-OSS-Instruct-75K'") },
    { "metamath", "the paper's IDAE-500K: maths", "meta-math/MetaMathQA", "MIT",
      TRAIN("instruct/metamath.jsonl", "'meta-math/MetaMathQA'") },
};
enum { N_SETS = sizeof sets / sizeof *sets };

void data_names(void)
{
    for (size_t i = 0; i < N_SETS; i++)
        printf("%s ", sets[i].name);
}

static void print_json(const struct data_set *s)
{
    out_begin(NULL, '{');
    out_text("name", s->name);
    out_text("used_by", s->used);
    out_text("source", s->source);
    out_text("licence", s->licence);
    out_text("command", s->command);
    out_end();
}

pesc_status data_fetch(const options *o)
{
    size_t shown = 0;
    for (size_t i = 0; i < N_SETS; i++)
        shown += !o->model || strcmp(o->model, sets[i].name) == 0;
    if (!shown)
        return out_fail(PESC_USAGE,
                        "data fetch: found \"%s\", expected one of the names that pesc data fetch "
                        "lists",
                        o->model);
    if (o->json)
        out_begin(NULL, '[');
    else
        printf("# The data sets of benchmarks and studies. The commands need the Python package "
               "datasets and fetch below the current directory.\n");
    for (size_t i = 0; i < N_SETS; i++) {
        if (o->model && strcmp(o->model, sets[i].name) != 0)
            continue;
        if (o->json)
            print_json(&sets[i]);
        else
            printf("\n%s\n    for      %s\n    source   %s\n    licence  %s\n    command  %s\n",
                   sets[i].name, sets[i].used, sets[i].source, sets[i].licence, sets[i].command);
    }
    if (o->json)
        out_end();
    return PESC_OK;
}
