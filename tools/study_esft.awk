# The report of tools/study_esft.sh: names.txt (name|what), then results.txt, a line a run:
#   target method seed rate  loss of general code maths  exact match of the same
#   trained bytes experts inside|edge
# The method "mixture" is what all begin with. Four measures: loss and exact match of the target,
# and of the other two domains, their mean. A difference of two methods is "outside the spread"
# when every seed of the one is better than every seed of the other.
FILENAME ~ /names/ { split($0, part, "|"); what[part[1]] = part[2]; methods[++n_methods] = part[1]; next }
BEGIN { split("general code maths", domain, " "); TARGET = 1; TARGET_EM = 2; OTHERS = 3; OTHERS_EM = 4 }
{
    key = $1 SUBSEP $2
    if (!($1 in seen)) { seen[$1] = 1; targets[++n_targets] = $1 }
    i = ++n[key]
    for (d = 1; d <= 3; d++) {
        k = domain[d] == $1 ? TARGET : OTHERS
        value[key, k, i] += k == TARGET ? $(4 + d) : $(4 + d) / 2
        value[key, k + 1, i] += 100 * (k == TARGET ? $(7 + d) : $(7 + d) / 2)
    }
    rate[key] = $4; trained[key] = $11; bytes[key] = $12; chosen[key] = $13; edge[key] = $14
}
function mean(key, k,    i, s) { for (i = 1; i <= n[key]; i++) s += value[key, k, i]; return s / n[key] }
function spread(key, k,    i, s, m) {
    if (n[key] < 2) return 0
    m = mean(key, k)
    for (i = 1; i <= n[key]; i++) s += (value[key, k, i] - m) ^ 2
    return sqrt(s / (n[key] - 1))
}
function below(a, b, k,    i, j) { # every seed of a below every seed of b
    for (i = 1; i <= n[a]; i++)
        for (j = 1; j <= n[b]; j++)
            if (value[a, k, i] >= value[b, k, j]) return 0
    return 1
}
function verdict(a, b, k,    up, down) { # + where a is better, - where b is, 0 inside the spread
    up = below(b, a, k); down = below(a, b, k)
    return k % 2 ? down - up : up - down
}
function row(t, m,    key) {
    key = t SUBSEP m
    if (!(key in n)) return
    printf "| %s | %s | %s | %.0f | %.0f | %g%s | %.4f ± %.4f | %.1f ± %.1f | %.4f ± %.4f | %.1f ± %.1f |\n", m, what[m],
        chosen[key] ? sprintf("%d of %d", chosen[key], 4 * experts) : "", trained[key] / 1e3, bytes[key] / 1e6, rate[key],
        edge[key] == "edge" ? "*" : "", mean(key, TARGET), spread(key, TARGET), mean(key, TARGET_EM),
        spread(key, TARGET_EM), mean(key, OTHERS), spread(key, OTHERS), mean(key, OTHERS_EM), spread(key, OTHERS_EM)
    starred = starred || edge[key] == "edge"
}
function table(t,    j, key) {
    key = t SUBSEP "mixture"
    printf "\n## Target %s\n\n", t
    print "| method | what trains | experts | trained K | MB | rate | target loss | target exact match | other two loss | other two exact match |"
    print "|---|---|---|---|---|---|---|---|---|---|"
    printf "| mixture | nothing: where all begin | | 0 | | | %.4f | %.1f | %.4f | %.1f |\n", mean(key, TARGET),
        mean(key, TARGET_EM), mean(key, OTHERS), mean(key, OTHERS_EM)
    for (j = 1; j <= n_methods; j++) row(t, methods[j])
}
function cell(a, b, k,    v) {
    v = verdict(a, b, k)
    return sprintf(k % 2 ? "%+.4f %s" : "%+.1f %s", mean(a, k) - mean(b, k), v > 0 ? "better" : v < 0 ? "worse" : "(inside)")
}
function compare(a, b,    j, k, one, other) {
    for (j = 1; j <= n_targets; j++) {
        one = targets[j] SUBSEP a; other = targets[j] SUBSEP b
        if (!(one in n) || !(other in n)) continue
        printf "| %s - %s | %s |", a, b, targets[j]
        for (k = TARGET; k <= OTHERS_EM; k++) printf " %s |", cell(one, other, k)
        print ""
    }
}
END {
    print "# The study of ESFT: chosen experts against full tuning, LoRA and random experts\n"
    print "Written by `make study-esft` (`tools/study_esft.sh`, `tools/study_esft.awk`). The embedded base is upcycled to " experts " experts a"
    print "layer, 2 a token, and tuned in full for " base_epochs " epochs on 60 % of the records of two domains of `share/train.jsonl` and 10 % of"
    print "the third, the target: it knows two domains, and of the target a little. From there each method has " epochs " epochs over another"
    print "80 % of the target's records, nothing else, with three learning rates for the first seed, and a fourth beyond the best of them"
    print "where that is the lowest or highest. The rate of the least loss on the last 10 % of the target's records is used with every"
    print "seed (" seeds ": order of the records, LoRA's A, random experts). Experts are scored on those 80 %; the balance loss is off; only"
    print "full tuning moves the routers.\n"
    print "Loss (nats a token) and exact match (%) are those of the 240 held-out records of `share/test.jsonl`, 80 a domain: mean and"
    print "standard deviation over the seeds. MB is the memory of the tuning step. What is lost on the other two domains is forgotten."
    for (j = 1; j <= n_targets; j++) table(targets[j])
    if (starred) print "\n\\* the best of the rates tried is the lowest or highest of them: a better one may be beyond it."
    print "\n## Differences\n"
    print "| difference | target | target loss | target exact match | other two loss | other two exact match |\n|---|---|---|---|---|---|"
    compare("esft-token", "full")
    compare("esft-token", "lora-r8")
    compare("esft-token", "lora-r64")
    compare("esft-token", "random")
    compare("esft-token", "esft-gate")
    compare("esft-token-50", "full")
    compare("esft-token-50", "lora-r64")
    compare("esft-token-50", "esft-token")
    compare("esft-gate", "full")
    print "\nBetter and worse: every seed of the first is better, or worse, than every seed of the second. (inside): the difference is"
    print "inside the spread of the seeds."
}
