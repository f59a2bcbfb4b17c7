# The report of tools/study.sh: names.txt (name|what), then results.txt, a line a run:
#   name seed rate valid  loss of general code maths all  exact match of the same
#   trained activated bytes seconds  inside|edge
# A difference of two methods is "outside the spread" when every seed of the one is better than
# every seed of the other.
FILENAME ~ /names/ { split($0, part, "|"); what[part[1]] = part[2]; next }
{
    name = $1
    if (!(name in n)) order[++methods] = name
    i = ++n[name]
    rate[name] = $3 + 0
    for (k = 1; k <= 8; k++) value[name, k, i] = $(4 + k)
    trained[name] = $13; activated[name] = $14; bytes[name] = $15
    seconds[name] += $16; edge[name] = $17
}
function mean(name, k,    i, s) { for (i = 1; i <= n[name]; i++) s += value[name, k, i]; return s / n[name] }
function spread(name, k,    i, s, m) {
    if (n[name] < 2) return 0
    m = mean(name, k)
    for (i = 1; i <= n[name]; i++) s += (value[name, k, i] - m) ^ 2
    return sqrt(s / (n[name] - 1))
}
function least(name, k,    i, v) { v = value[name, k, 1]; for (i = 2; i <= n[name]; i++) if (value[name, k, i] < v) v = value[name, k, i]; return v }
function most(name, k,    i, v) { v = value[name, k, 1]; for (i = 2; i <= n[name]; i++) if (value[name, k, i] > v) v = value[name, k, i]; return v }
function verdict(a, b, k) { return most(a, k) < least(b, k) || most(b, k) < least(a, k) ? "outside the spread" : "inside the spread" }
function compare(a, b, why) {
    if (!(a in n) || !(b in n)) return
    printf "| %s - %s | %s | %+.4f, %s | %+.1f, %s |\n", a, b, why, mean(a, 4) - mean(b, 4), verdict(a, b, 4),
        100 * (mean(a, 8) - mean(b, 8)), verdict(a, b, 8)
}
END {
    print "# The study: every method on the embedded three-domain task\n"
    print "Written by `make study` (`tools/study.sh`, `tools/study.awk`): " epochs " epochs over 90 % of `share/train.jsonl`, seeds " seeds
    print "(order of the records, LoRA's A, routers, adapters). Each method has the same budget: four learning rates with the"
    print "first seed; the best of them on the other 10 % of the training records is used with every seed. Loss (nats a token) and"
    print "exact match (%) are those of the 240 held-out records of `share/test.jsonl`: mean and standard deviation over the seeds."
    print "MB is the memory of the tuning step, s the time of a run on the machine that made this page.\n"
    print "| method | what trains | trained K | activated K | rate | loss | general | code | maths | exact match | general | code | maths | MB | s |"
    print "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for (j = 1; j <= methods; j++) {
        m = order[j]
        printf "| %s | %s | %.0f | %.0f | %g%s | %.4f ± %.4f | %.3f | %.3f | %.3f | %.1f ± %.1f | %.1f | %.1f | %.1f | %.0f | %.0f |\n",
            m, what[m], trained[m] / 1e3, activated[m] / 1e3, rate[m], edge[m] == "edge" ? "*" : "",
            mean(m, 4), spread(m, 4), mean(m, 1), mean(m, 2), mean(m, 3),
            100 * mean(m, 8), 100 * spread(m, 8), 100 * mean(m, 5), 100 * mean(m, 6), 100 * mean(m, 7),
            bytes[m] / 1e6, seconds[m] / n[m]
        starred = starred || edge[m] == "edge"
    }
    if (starred) print "\n\\* the best of the rates tried is the lowest or highest of them: a better one may be beyond it."
    print "\n| difference | at equal | loss | exact match |\n|---|---|---|---|"
    compare("pesc-8", "lora-r8", "rank")
    compare("pesc-8", "lora-r8-long", "time, about: see s")
    compare("pesc-8", "lora-r22", "activated parameters")
    compare("pesc-8", "lora-r62", "trainable parameters")
    compare("pesc-8", "molora", "number of experts")
    compare("pesc-8", "upcycle", "number of experts")
    compare("pesc-8", "full", "model width")
    compare("pesc-8", "pesc-4", "adapter width")
    compare("pesc-16", "pesc-8", "adapter width")
    print "\nOutside the spread: every seed of the one is better than every seed of the other. A negative difference of loss and a"
    print "positive one of exact match favour the first."
}
