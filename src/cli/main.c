/* main: the table of commands; parses the command line and runs one of them. */
#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/show/progress.h"

#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* In the order in which they are listed. */
/* clang-format off */
const command commands[] = {
    {
        .name = "init", .job = "start", .synopsis = "[RECIPE]", .keys = { "recipe" },
        .summary = "a commented run file for train and plan", .run = cmd_init,
        .about = "Writes YAML for `pesc train -c` and `pesc plan -c`: every option of a run "
                 "with its meaning. Options that the recipe sets, and those given here, are "
                 "keys; the others are commented out, with their defaults. model, data and "
                 "output are placeholders if they are not given.",
        .examples = "pesc init pesc --model sparse --data train.jsonl > run.yaml\n"
                    "pesc init qlora --model ~/models/Yi-6B --data a.jsonl b.jsonl --lr 1e-4 -o run.yaml\n",
    },
    {
        .name = "demo", .job = "start", .synopsis = "[-o DIR]", .run = cmd_demo,
        .summary = "the main work flow in minutes, on an embedded tiny model",
        .about = "Crafts sparse models from a dense one of 0.85 M weights, tunes the dense, "
                 "the sparse and the upcycled model on the same instructions of three "
                 "domains, the sparse one then on pairs of answers, evaluates each on held-out "
                 "questions and pairs, shows which experts are chosen, and chats. Each step is a "
                 "command that you could type. Model and instructions are searched in "
                 "$PESC_SHARE, or in ../share/pesc and ../share relative to the program.",
        .examples = "pesc demo\n"
                    "pesc demo -o /tmp/demo --epochs 1 --json\n",
    },
    {
        .name = "doctor", .job = "start", .synopsis = "", .summary = "what this build and this machine have",
        .run = cmd_doctor,
        .about = "One line each: ok, missing or a note. With --kernels: the kernels of matrix products "
                 "on the CPU and on a GPU, whether or not this machine has the hardware. Of two that "
                 "serve the same product the one listed first computes it.",
        .examples = "pesc doctor\n"
                    "pesc doctor --kernels\n",
    },
    {
        .name = "info", .job = "look", .synopsis = "MODEL", .keys = { "model" }, .n_required = 1,
        .summary = "what a model is: family, shapes, parameters, bytes", .run = cmd_info,
        .about = "Reads the configuration and the headers of the weight files, but no "
                 "weights: it takes little time and memory, whatever the size of the model. "
                 "With an option that says how a model is opened (--lora, --patch, "
                 "--base-dtype and so on) the model is also opened that way, which shows "
                 "whether it can be.",
        .examples = "pesc info ~/models/Yi-6B\n"
                    "pesc info ~/models/Yi-6B --lora adapter --base-dtype nf4\n"
                    "pesc info model.gguf --json\n",
    },
    {
        .name = "data", .job = "look", .synopsis = "check|stats|inspect|mix|fetch [MODEL] --data FILE...",
        .keys = { "action", "model" }, .n_required = 1,
        .actions = (const char *const[]){ "check", "stats", "inspect", "mix", "fetch", NULL },
        .summary = "look at training data before it is used, or mix it", .run = cmd_data,
        .about = "check reads every record as training would and lists the bad ones, up to 20 (exit "
                 "3); stats shows how long records are; inspect shows the text of the first "
                 "records, trained tokens in colour on a terminal and between white square brackets "
                 "elsewhere. mix draws records from the files of several domains, without "
                 "replacement, in an order that --seed gives; leaves out records whose turns "
                 "occurred already and those without a prompt or an answer; writes lines "
                 "{\"messages\": [...], \"domain\": ...} in a mixed order, and OUT.mix.json with "
                 "counts, seed, rules and hashes (XXH3). Files are JSON lines, a JSON array, CSV or "
                 "TSV with a header, Parquet, or plain text; docs/formats.md has the table of "
                 "formats. fetch lists the data sets of the benchmarks, of the paper and of the studies, or the one "
                 "that is named: where it is published, its licence, and the command that fetches and converts it; it fetches nothing itself.",
        .examples = "pesc data check ~/models/Yi-6B --data train.jsonl --seq-len 2048\n"
                    "pesc data stats ~/models/Yi-6B --data train.jsonl more.jsonl --json\n"
                    "pesc data inspect ~/models/Yi-6B --data train.jsonl -n 2\n"
                    "pesc data mix --preset idae-500k --general SlimOrca.jsonl \\\n"
                    "    --code oss.jsonl evol.jsonl --maths MetaMathQA.json -o idae-500k.jsonl\n"
                    "pesc data mix --domain law=statutes.csv --domain law=cases.jsonl \\\n"
                    "    --domain chat=chat.jsonl --weights 3,1 --total 20000 -o law.jsonl\n"
                    "pesc data fetch gsm8k\n",
    },
    {
        .name = "plan", .job = "look", .synopsis = "MODEL ...train options", .keys = { "model" }, .n_required = 1,
        .summary = "the memory and disk space that a run needs", .run = cmd_plan,
        .about = "Takes the options of train and computes, from configuration and file "
                 "headers alone, the memory of a run by part, whether it fits, the largest "
                 "micro-batch that would fit, and the size of a checkpoint. Loads no weights.",
        .examples = "pesc plan sparse --base-dtype nf4 --seq-len 2048\n"
                    "pesc plan dense --method qlora --json\n",
    },
    {
        .name = "cost", .job = "look", .synopsis = "MODEL...", .keys = { "models" }, .n_required = 1,
        .summary = "parameters, FLOP and bytes of models; --measure: time and memory", .run = cmd_cost,
        .about = "Counts from configuration and file headers alone, by part: parameters, those that a "
                 "token uses, those that train; FLOP of a token in inference and in training (matrix "
                 "products of a sequence of --tokens tokens, 2 for each multiply-add); bytes of "
                 "weights, activations and KV cache. A config.json alone is enough. With --measure "
                 "each model is opened and run on random tokens. The picture compares the models.",
        .examples = "pesc cost ~/models/Yi-6B yi-8x6b run\n"
                    "pesc cost config.json --tokens 512 --base-dtype nf4 --compute-dtype bf16 --json\n"
                    "pesc cost dense sparse --measure --device cuda -o costs\n",
    },
    {
        .name = "new", .job = "make", .synopsis = "CONFIG -o DIR", .keys = { "config_json" }, .n_required = 1,
        .summary = "a randomly initialised model of a configuration", .run = cmd_new,
        .about = "Writes a Hugging Face directory with random weights, so that training from "
                 "scratch starts from a model directory like everything else. A directory "
                 "that is not empty is refused unless --overwrite.",
        .examples = "pesc new config.json -o tiny --tokenizer ~/models/Yi-6B\n"
                    "pesc new config.json -o tiny --dtype f32 --seed 7\n",
    },
    {
        .name = "craft", .job = "make", .synopsis = "DENSE -o DIR", .keys = { "model" }, .n_required = 1,
        .summary = "a sparse model from a dense one", .run = cmd_craft,
        .about = "Kind pesc adds adapters as experts and a router to every layer, in the "
                 "layout of Camelidae: the dense tensors are copied bit for bit, and the "
                 "logits do not change, which is checked at the end. Kind upcycle makes full "
                 "copies of the FFN: Mixtral from a Llama, Mistral or Yi model, Qwen2-MoE or "
                 "Qwen3-MoE from a Qwen model; the logits are the same up to rounding. "
                 "--granularity cuts each copy into narrower experts, --shared 1 adds a copy that "
                 "every token takes, and --reinit makes the copies differ. "
                 "Weights are streamed: memory does not grow with the model.",
        .examples = "pesc craft ~/models/Yi-6B -o yi-8x6b --experts 8 --top-k 2 --adapter-dim 512\n"
                    "pesc craft ~/models/Qwen2-1.5B -o qwen-4x1.5b --kind upcycle --experts 4\n"
                    "pesc craft ~/models/Qwen3-0.6B -o fine --kind upcycle --experts 4 --granularity 8\n",
    },
    {
        .name = "merge", .job = "make", .synopsis = "MODEL -o DIR", .keys = { "model" }, .n_required = 1,
        .summary = "a LoRA merged into the weights of its base", .run = cmd_merge,
        .about = "Writes W + scale B A, computed in f32, in the dtype of W. The LoRA is the "
                 "one in the directory of MODEL, or --lora. Adapters of PESC stay adapters. "
                 "The result is opened and compared with the model before; with 16-bit "
                 "weights they differ by rounding.",
        .examples = "pesc merge run -o tuned\n"
                    "pesc merge ~/models/Yi-6B --lora adapter -o merged --dtype f32\n",
    },
    {
        .name = "export", .job = "make", .synopsis = "MODEL --to TARGET -o DIR", .keys = { "model" },
        .n_required = 1, .summary = "a model for other programs", .run = cmd_export,
        .about = "Target hf is the directory of the model's own family, as transformers reads "
                 "it, whatever format MODEL is stored in; with adapters (PESC) it carries a "
                 "modelling file, and transformers opens it with trust_remote_code; camelidae is the published layout "
                 "of models with adapters, which the authors' modeling_camelidae.py opens "
                 "when it is in the same directory; gguf is one file for llama.cpp, Ollama and "
                 "the like (-o FILE.gguf, or a directory in which model.gguf is written) with a "
                 "Modelfile for Ollama beside it; peft is the LoRA alone, gguf-lora the same "
                 "for llama.cpp over a GGUF file of the base (-o FILE.gguf, or a directory in which lora.gguf is written). The others "
                 "merge a LoRA into the weights, as merge does. A model card (README.md, or FILE.README.md) has the data, method "
                 "and figures of a run and the licence of the base. A model that a target cannot "
                 "represent is refused. The result is opened and compared.",
        .examples = "pesc export model.gguf --to hf -o model\n"
                    "pesc export run --to gguf --dtype q4_k -o tuned-q4_k.gguf\n"
                    "pesc export run --to camelidae -o tuned\n"
                    "pesc export run/best --to peft -o adapter\n"
                    "pesc export run --to gguf-lora -o lora.gguf\n",
    },
    {
        .name = "train", .job = "tune", .synopsis = "MODEL --data FILE... -o RUN", .keys = { "model" },
        .n_required = 1, .summary = "tune a model on instructions", .run = cmd_train,
        .about = "Trains the parameters that --method names and writes a run directory: "
                 "run.yaml (all options), metrics.jsonl, routing.jsonl, tb/ (TensorBoard), "
                 "plots/ (loss and expert load, drawn at each checkpoint), checkpoint-N/ and "
                 "latest. --resume continues a run that was stopped or killed, bit for bit. "
                 "SIGTERM, SIGINT, SIGUSR1 or `touch RUN/STOP` finish the step, save and exit "
                 "75; `touch RUN/SAVE` saves. Every other command accepts a run directory as "
                 "a model. A run needs its base: to resume or open it on another machine, copy "
                 "RUN, the base and the data. The base is found at the recorded path, at the "
                 "same place relative to RUN, or beside RUN under the same name; --base gives "
                 "it otherwise. --resume reads all of the base and refuses one that has "
                 "changed; data files that have moved are given with --data. The line of a step: "
                 "step and steps of the run; loss, which is ce (cross-entropy, nats a token) plus aux "
                 "(balance loss with its factor); gn, the norm of the gradient before clipping; lr; tokens "
                 "a second, and the part of the device's peak that they are; H, the entropy of the "
                 "routers' choices (1 is even), of all layers and of the worst one; dead, experts that no "
                 "token chose; memory used and there; eta, the time left.",
        .examples = "pesc train sparse --data train.jsonl -o run --base-dtype nf4\n"
                    "pesc train dense --data train.jsonl -o camel --method qlora --lora-r 64\n"
                    "pesc train -o run --resume\n"
                    "pesc train -o run --resume --base ~/models/Yi-6B --data moved/train.jsonl\n"
                    "pesc train -c run/run.yaml -o again\n",
    },
    {
        .name = "esft", .job = "tune", .synopsis = "score|select|apply|unapply|prune INPUT... -o OUT",
        .keys = { "action", "inputs" }, .n_required = 1,
        .actions = (const char *const[]){ "score", "select", "apply", "unapply", "prune", NULL },
        .summary = "find the experts a task uses, and tune only those", .run = cmd_esft,
        .about = "score runs records of a task through a mixture of experts, up to the last "
                 "router, and writes summary.json: for each layer and expert the fraction of "
                 "all choices that fell on it (token) and its mean gate (gate), rounded to 4 "
                 "decimals. select takes the best experts of each layer until their scores "
                 "add up to --p, writes them as expert_cfg.json for train --method esft, and "
                 "draws them (OUT with .svg and .png); with several summaries it takes the "
                 "experts that any of the tasks uses, and shows how many they have in common. "
                 "apply writes a model with an expert patch applied, unapply the base of a tuned "
                 "model again, and prune a smaller model without the experts that a task uses "
                 "least. Both files are those of ESFT, byte for byte. With --background score also "
                 "scores general data, and select takes experts by how much more the task uses "
                 "them.",
        .examples = "pesc esft score ~/models/OLMoE --data law.jsonl -o scores/law\n"
                    "pesc esft select scores/law --metric token --p 0.2 -o expert_cfg.json\n"
                    "pesc esft select scores/law scores/intent --model ~/models/OLMoE -o both.json\n"
                    "pesc esft score --from-logs expert_scores/law -o scores/law\n"
                    "pesc esft apply ~/models/OLMoE --patch run/latest -o olmoe-law\n"
                    "pesc esft unapply olmoe-law -o olmoe\n"
                    "pesc esft prune ~/models/OLMoE --scores scores/law --keep 32 -o olmoe-32\n",
    },
    {
        .name = "eval", .job = "judge", .synopsis = "MODEL... --tasks TASK...", .keys = { "models" },
        .summary = "benchmarks, and loss and exact answers on held-out instructions", .run = cmd_eval,
        .about = "A task is a benchmark by name (--list prints them: mmlu, arc_easy, gsm8k, humaneval, "
                 "paper12, ...), a file that defines one (.json), or a file of records. Benchmarks are "
                 "scored as lm-evaluation-harness 0.4.13 scores them; docs/eval.md has the rules and "
                 "the format of task files. Their data is read from --data-dir and never fetched. With "
                 "several models the table has the difference of each to the first, paired by document, "
                 "and --json prints a list with an object for each. A MODEL that is the address of a "
                 "server with OpenAI's interface is asked there. "
                 "A file of records may have any format that train reads. Two "
                 "things are measured for each record: the mean loss of the tokens of its "
                 "answers, and whether the greedy answer of the model to the question is "
                 "exactly the answer of the record (ignoring space around it). Both are "
                 "reported by domain: the field \"domain\" of a record, or the name of its "
                 "file. Questions are answered --batch at a time, which does not change the "
                 "result.",
        .examples = "pesc eval run --tasks test.jsonl\n"
                    "pesc eval ~/models/Yi-6B --tasks general.jsonl,maths.jsonl -n 200 --json\n"
                    "pesc eval base run --tasks arc_easy,piqa --data-dir bench -o results\n"
                    "pesc eval base --tasks mmlu --shots 5 --limit 100 --json\n"
                    "pesc eval base http://127.0.0.1:8080 --tasks gsm8k --limit 100 -o results\n"
                    "pesc eval --list\n",
    },
    {
        .name = "routes", .job = "judge", .synopsis = "MODEL --data FILE...", .keys = { "model" },
        .summary = "which experts the tokens of each domain choose", .run = cmd_routes,
        .about = "Runs records through a sparse model and counts, for every layer and domain, "
                 "how often each expert is chosen: a map on the terminal, and the same as "
                 "DIR/plots/routing.svg and .png. The domain of a record is its field "
                 "\"domain\", or the name of its file. The last column shows how much the "
                 "domains differ: 0 when all choose alike, 1 when no two have an expert in "
                 "common (Jensen-Shannon divergence). A second table has load, entropy and gates, "
                 "and p: how often domains that are exchanged among the records at random differ "
                 "as much. --layer L shows one layer closely, with bars of the first and the "
                 "second choice, and the tokens that each expert takes. --over-time RUN needs no "
                 "MODEL: it draws what routing.jsonl of a run says.",
        .examples = "pesc routes run --data test.jsonl\n"
                    "pesc routes run --data test.jsonl --layer 15\n"
                    "pesc routes --over-time run -o analysis\n"
                    "pesc routes camelidae-8x7b --data code.jsonl maths.jsonl -n 500 -o analysis\n",
    },
    {
        .name = "compare", .job = "judge", .synopsis = "MODEL OTHER --data FILE...",
        .keys = { "model", "other" }, .n_required = 2,
        .summary = "how two models differ on the same tokens, layer by layer", .run = cmd_compare,
        .about = "Both models read the same records, with the tokenizer and the chat format of MODEL. "
                 "For each layer: the relative distance of what the FFN or the experts add, and of "
                 "the residual stream; for the whole models the KL divergence of the next token and "
                 "how often the most likely one is the same. Of a PESC model and one with full "
                 "experts, as many of them, also the distance of experts (equation 6 of the PESC "
                 "paper): all experts of both compute the outputs of the same inputs.",
        .examples = "pesc compare ~/models/Yi-6B run --data test.jsonl\n"
                    "pesc compare pesc-run upcycled-run --data test.jsonl -n 100 -o analysis --json\n",
    },
    {
        .name = "perplexity", .job = "judge", .synopsis = "MODEL [FILE]", .keys = { "model", "file" },
        .n_required = 1, .summary = "mean loss and perplexity of a text", .run = cmd_perplexity,
        .about = "The text is cut into windows of --ctx tokens, each predicted from its own start. "
                 "The loss is the mean over predicted tokens, in nats.",
        .examples = "pesc perplexity ~/models/Yi-6B wiki.test.raw --ctx 2048\n",
    },
    {
        .name = "logits", .job = "judge", .synopsis = "MODEL --ids FILE.json -o OUT.npy", .keys = { "model" },
        .n_required = 1, .summary = "float32 logits of every position, as a NumPy file",
        .run = cmd_logits,
        .about = "For comparisons with other programs. The ids are a JSON array, or an object "
                 "that has one under ids or input_ids. An array of arrays of the same length "
                 "gives [sequences, positions, vocabulary].",
        .examples = "echo '[1, 15, 27]' > ids.json\n"
                    "pesc logits ~/models/Yi-6B --ids ids.json -o logits.npy\n",
    },
    {
        .name = "bench", .job = "judge", .synopsis = "MODEL | serve URL", .keys = { "model", "url" }, .n_required = 1,
        .summary = "tokens per second of a model, or MB/s of a tokenizer", .run = cmd_bench,
        .about = "Measures prefill of a prompt and then decode, token by token, or with "
                 "--text the encoding of a text on one thread; reports the best and the "
                 "median of --repeat runs, after one run that is not counted. `bench serve URL` "
                 "sends --requests streamed completions of random token ids to any server with "
                 "OpenAI's interface and reports throughput, time to the first token and time "
                 "between tokens (of events, where a server sends several tokens in one). "
                 "OPENAI_API_KEY in the environment is sent as the key.",
        .examples = "pesc bench ~/models/Yi-6B --prompt-tokens 512 --decode-tokens 128\n"
                    "pesc bench --text book.txt tokenizer.json --json\n"
                    "pesc bench serve http://127.0.0.1:8080 --rate 4 --requests 200\n",
    },
    {
        .name = "generate", .job = "use", .synopsis = "MODEL --prompt TEXT|--ids FILE.json", .keys = { "model" },
        .n_required = 1, .summary = "one completion", .run = cmd_generate,
        .about = "Continues a text and writes it while it is generated. With --json it writes "
                 "one object at the end: ids (the new tokens), text, finish (stop, length or "
                 "stopped), prompt_tokens and tokens_per_second.",
        .examples = "pesc generate ~/models/Yi-6B --prompt 'Once upon a time' --max-tokens 100\n"
                    "pesc generate model.gguf --ids ids.json --json\n"
                    "pesc generate tiny -p 'Q:' -t 0.8 --top-p 0.95 --seed 3 --stop 'Q:'\n",
    },
    {
        .name = "chat", .job = "use", .synopsis = "MODEL", .keys = { "model" }, .n_required = 1,
        .summary = "a conversation in the terminal", .run = cmd_chat,
        .about = "Line editing with history; Ctrl-C stops an answer, Ctrl-D quits. A line "
                 "that begins with / is a command: /retry for another answer, /edit [TEXT] for another "
                 "question, /reset, /system [TEXT], /set [KEY VALUE] for a sampling option, /save FILE, "
                 "/load FILE, /help, /quit. With --tool the model may call programs: each call is shown, "
                 "and runs if you answer y; its output goes to the model. Thoughts and calls go to "
                 "standard error. "
                 "Without a terminal each line of standard input is one message. The text of "
                 "messages never becomes a control token. The history of lines is kept "
                 "between runs only if XDG_STATE_HOME is set.",
        .examples = "pesc chat ~/models/Qwen2-7B-Instruct --system 'Answer in one sentence.'\n"
                    "pesc chat camelidae-8x7b --chat-format camelidae -t 0.7\n"
                    "pesc chat ~/models/Qwen3-8B --tool weather=./weather  # reads weather.json, if it is there\n",
    },
    {
        .name = "serve", .job = "use", .synopsis = "MODEL", .keys = { "model" }, .n_required = 1,
        .summary = "an HTTP server with the interface of OpenAI's", .run = cmd_serve,
        .about = "Answers /v1/completions, /v1/chat/completions (also as streams), /v1/models, "
                 "/tokenize, /detokenize, /tokenizer_info, /apply-template, /health and /metrics; "
                 "docs/serve.md has the fields and errors. Requests run together in batches; the "
                 "same request with the same seed gets the same tokens whatever else runs. Writes "
                 "a line for each request to standard output. SIGTERM, SIGINT and SIGHUP let running requests end, for at most "
                 "--drain seconds. There is no TLS: put a proxy in front where the network is not "
                 "trusted.",
        .examples = "pesc serve ~/models/Yi-6B\n"
                    "pesc serve run --port 9000 --max-streams 16 --context 8192\n"
                    "pesc serve base --lora law=runs/law --lora poems=runs/poems\n"
                    "pesc serve olmoe --patch law=runs/law --patch poems=runs/poems\n"
                    "pesc serve model.gguf --host 0.0.0.0 --api-key-file keys.txt --log-json\n",
    },
    {
        .name = "runs", .job = "use", .synopsis = "[DIR...]", .keys = { "inputs" },
        .summary = "training runs in the browser, live", .run = cmd_runs,
        .about = "Serves a page with all runs of the folders: loss and validation, learning rate, gradient norm, tokens per second, "
                 "memory, the load and the entropy of the experts layer by layer, benchmark results and settings, several runs "
                 "on one axis. It reads metrics.jsonl, eval.jsonl and routing.jsonl as they grow, so runs that are going on, "
                 "finished ones and copies from other machines look alike; nothing is written. Open the address that it "
                 "prints; it listens on this machine alone unless --host says otherwise.",
        .examples = "pesc runs\n"
                    "pesc runs runs old/runs --port 9000\n",
    },
    {
        .name = "tokenize", .job = "text", .synopsis = "TOKENIZER [FILE]", .keys = { "model", "file" },
        .n_required = 1, .summary = "the token ids of a text", .run = cmd_tokenize,
        .about = "Writes the ids on one line, separated by spaces. Control tokens written in the "
                 "text stay text unless --parse-special; BOS and EOS are added only with "
                 "--add-special. Bytes that are not UTF-8 are read as U+FFFD.",
        .examples = "echo -n 'Hello world' | pesc tokenize ~/models/Yi-6B\n"
                    "pesc tokenize tokenizer.json book.txt --json\n"
                    "pesc tokenize tokenizer.model --jsonl lines.jsonl\n",
    },
    {
        .name = "detokenize", .job = "text", .synopsis = "TOKENIZER [FILE]", .keys = { "model", "file" },
        .n_required = 1, .summary = "the text of token ids", .run = cmd_detokenize,
        .about = "Writes the text as it is, without a newline of its own, so that detokenize "
                 "is the inverse of tokenize.",
        .examples = "echo 1 2 3 | pesc detokenize ~/models/Yi-6B\n"
                    "pesc detokenize tokenizer.json ids.json --skip-special\n",
    },
    {
        .name = "help", .synopsis = "[COMMAND]", .keys = { "topic" },
        .summary = "explain a command", .run = cmd_help,
        .about = "The same text as --help; also the manual page, the reference pages and shell "
                 "completion, printed from the same table.",
        .examples = "pesc help generate\n"
                    "pesc help --man > pesc.1\n"
                    "source <(pesc help --completion bash)\n",
    },
    {
        .name = "version", .synopsis = "", .summary = "the version of pesc", .run = cmd_version,
        .about = "One line: pesc and its version.",
        .examples = "pesc version\n",
    },
    { 0 },
};
/* clang-format on */

/* Other words for help and version. */
static const struct {
    const char *word, *name;
} aliases[] = {
    { "--help", "help" }, { "-h", "help" }, { "--version", "version" }, { "-V", "version" }
};

static const command *find_command(const char *word)
{
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(word, aliases[i].word) == 0)
            word = aliases[i].name;
    for (const command *c = commands; c->name; c++)
        if (strcmp(word, c->name) == 0)
            return c;
    return NULL;
}

pesc_status command_find(const char *word, const command **out)
{
    const char *names[sizeof commands / sizeof *commands];
    size_t n = 0;
    *out = find_command(word);
    if (*out)
        return PESC_OK;
    for (const command *c = commands; c->name; c++)
        names[n++] = c->name;
    const char *near = opt_nearest(word, names, n);
    return near ? out_fail(PESC_USAGE, "there is no command \"%s\"; did you mean %s?", word, near)
                : out_fail(PESC_USAGE, "there is no command \"%s\"; `pesc` alone lists them", word);
}

bool command_is_argument(const command *c, const char *key)
{
    for (size_t i = 0; i < sizeof c->keys / sizeof *c->keys; i++)
        if (c->keys[i] && strcmp(c->keys[i], key) == 0)
            return true;
    return false;
}

/* Whether a failure is reported as JSON, for failures before the options are parsed. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

static pesc_status run_command(int argc, char **argv, options *o)
{
    const command *c;
    if (argc < 2) {
        help_overview();
        return out_flush();
    }
    TRY(command_find(argv[1], &c));
    TRY(opt_parse(o, c, argc - 2, argv + 2));
    if (o->help) {
        help_command(c);
        return out_flush();
    }
    progress_open(c->name, o->quiet);
    pesc_status st = open_checkpoints(o);
    if (st == PESC_OK)
        st = c->run(o);
    progress_close();
    return st != PESC_OK ? st : out_flush();
}

/* Standard input, output and error that are closed are opened on /dev/null: else the first files of
 * a run would get their numbers, and what is printed would be written into those. Each is opened
 * the wrong way round, so that using it still fails. */
static void fill_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

typedef struct words {
    int argc;
    char **argv;
    int code;
} words;

static void *main_thread(void *ud)
{
    words *w = ud;
    options o = { 0 };
    pesc_status st = run_command(w->argc, w->argv, &o);
    w->code = st == PESC_OK ? 0 : out_report(st, o.json || wants_json(w->argc, w->argv));
    opt_free(&o);
    return NULL;
}

/* With a small stack (`ulimit -s`) the program runs in a thread whose stack is large enough:
 * drawing text takes more than 64 KiB. */
static void with_room(words *w)
{
    enum { NEED = 1 << 20, STACK = 8 << 20 };
    struct rlimit have;
    pthread_attr_t attr;
    pthread_t thread;
    bool small = getrlimit(RLIMIT_STACK, &have) == 0 && have.rlim_cur < NEED;
    if (small && pthread_attr_init(&attr) == 0) {
        small = pthread_attr_setstacksize(&attr, STACK) == 0 &&
                pthread_create(&thread, &attr, main_thread, w) == 0;
        pthread_attr_destroy(&attr);
        if (small)
            pthread_join(thread, NULL);
    }
    if (!small)
        main_thread(w);
}

int main(int argc, char **argv)
{
    fill_standard_files();
    /* `| head` ends the process silently, even if the parent ignores SIGPIPE. */
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_IGN); /* a file above ulimit -f is a failed write */
    setlocale(LC_CTYPE, "");
    words w = { argc, argv, 0 };
    with_room(&w);
    return w.code;
}
