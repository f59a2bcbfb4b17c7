// The page of training runs: asks the server for what their logs have got, and draws it.
import { Chart, number, smoothed } from "./chart.js";
import { getJson } from "./client.js";
import { byId, element } from "./dom.js";
import { colourOf as paletteColour } from "./experts.js";
import { drawLoad, drawOver } from "./routing.js";

const PERIOD = 2000; // milliseconds between looks at the server
const LOGS = ["metrics", "validation", "routing"];

const state = { runs: [], chosen: new Set(), touched: false, logs: new Map(), details: new Map(), colours: new Map(), at: null };

const CHARTS = [
    { title: "Loss (validation dashed)", key: "loss", smooth: true, logs: true, dashed: "eval_loss" },
    { title: "Reward margin (validation dashed)", key: "rewards/margins", smooth: true, dashed: "eval_rewards/margins" },
    { title: "Pairs whose chosen answer has the higher reward (validation dashed)", key: "rewards/accuracies", smooth: true, dashed: "eval_rewards/accuracies" },
    { title: "Log-probability of chosen answers (validation dashed)", key: "logps/chosen", smooth: true, dashed: "eval_logps/chosen" },
    { title: "Learning rate", key: "lr", zero: true },
    { title: "Gradient norm, before clipping", key: "grad_norm", smooth: true, zero: true },
    { title: "Tokens per second", key: "tok_s", smooth: true, zero: true },
    { title: "Memory", key: "mem_bytes", zero: true },
    { title: "Entropy of the experts (1: all alike)", key: "expert_entropy", smooth: true },
    { title: "Experts with less than 1 % of an even share", key: "dead_experts", zero: true },
    { title: "Balance loss (1: balanced)", key: "aux", smooth: true },
].map((c) => ({ ...c, chart: new Chart(c.title, c) }));

const say = (text) => { byId("status").textContent = text; };

// Of the order in which runs were chosen, so that it stays when others appear.
function colourOf(run) {
    if (!state.colours.has(run.id))
        state.colours.set(run.id, state.colours.size);
    return paletteColour(state.colours.get(run.id));
}

const chosenRuns = () => state.runs.filter((r) => state.chosen.has(r.id));

// ---- the list ----

function ago(seconds) {
    const steps = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
    const [size, unit] = steps.find(([s]) => seconds >= s) ?? [1, "s"];
    return `${Math.max(0, Math.floor(seconds / size))} ${unit} ago`;
}

function aboutOf(run, now) {
    const last = run.last ?? {}, parts = [run.method];
    if (last.step)
        parts.push(`step ${last.step}${Number(run.steps) > 0 ? ` of ${run.steps}` : ""}`, `loss ${number(last.loss)}`);
    if (run.last_eval)
        parts.push(`validation ${number(run.last_eval.eval_loss)}`);
    if (!run.running && run.changed)
        parts.push(ago(now - run.changed));
    return parts.filter(Boolean).join(" · ");
}

function drawList(now) {
    const wanted = byId("find").value.trim().toLowerCase();
    const focus = document.activeElement?.closest("li")?.dataset.id;
    byId("none").hidden = state.runs.length > 0;
    byId("list").replaceChildren(...state.runs.filter((r) => r.path.toLowerCase().includes(wanted)).map((run) => {
        const box = element("input", { type: "checkbox", checked: state.chosen.has(run.id) });
        box.addEventListener("change", () => choose(run, box.checked));
        const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
        if (state.chosen.has(run.id))
            swatch.style.setProperty("--run", colourOf(run));
        return element("li", { "data-id": run.id }, element("label", { title: run.path }, box, swatch, element("span", { class: "name" }, run.name),
            element("span", { class: `state ${run.running ? "running" : ""}` }, run.running ? "running" : "ended"),
            element("span", { class: "about" }, aboutOf(run, now))));
    }));
    if (focus)
        byId("list").querySelector(`[data-id="${focus}"] input`)?.focus();
}

function choose(run, on) {
    state.touched = true;
    state.chosen[on ? "add" : "delete"](run.id);
    look();
}

// ---- logs ----

function logOf(run, name) {
    const key = `${run.id}/${name}`;
    if (!state.logs.has(key))
        state.logs.set(key, { to: 0, lines: [] });
    return state.logs.get(key);
}

async function follow(run) {
    await Promise.all(LOGS.map(async (name) => {
        const log = logOf(run, name), from = log.to, answer = await getJson(`/v1/runs/${run.id}/${name}/${from}`);
        if (log.to !== from)
            return; // another look has had these lines
        if (answer.again)
            log.lines = [];
        log.lines.push(...answer.lines);
        log.to = answer.to;
    }));
    if (!state.details.has(run.id) || run.running)
        state.details.set(run.id, await getJson(`/v1/runs/${run.id}/details`));
}

function pointsOf(run, log, key) {
    const axis = byId("axis").value, metrics = logOf(run, "metrics").lines;
    const place = log === "metrics" || axis === "step" ? null : new Map(metrics.map((m) => [m.step, m[axis]]));
    return logOf(run, log).lines.map((m) => [place ? place.get(m.step) : m[axis], m[key]])
        .filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y));
}

// ---- charts ----

function seriesOf(c, run) {
    const colour = colourOf(run), points = pointsOf(run, "metrics", c.key);
    const weight = c.smooth ? Number(byId("smooth").value) : 0;
    const out = [{ name: run.name, colour, points: smoothed(points, weight) }];
    if (weight)
        out.unshift({ name: run.name, colour, points, faint: true });
    if (c.dashed)
        out.push({ name: `${run.name} validation`, colour, points: pointsOf(run, "validation", c.dashed), dots: true });
    return out;
}

function drawCharts() {
    for (const c of CHARTS)
        c.chart.set(chosenRuns().flatMap((run) => seriesOf(c, run)), c.logs && byId("log").checked);
}

function drawExperts() {
    const routed = chosenRuns().filter((r) => logOf(r, "routing").lines.length);
    const select = byId("routed"), kept = select.value;
    byId("experts-of").hidden = !routed.length;
    if (!routed.length)
        return;
    select.replaceChildren(...routed.map((r) => element("option", { value: r.id }, r.name)));
    select.value = routed.some((r) => r.id === kept) ? kept : routed[0].id;
    const lines = logOf(routed.find((r) => r.id === select.value), "routing").lines;
    const moment = byId("moment"), newest = moment.value === moment.max;
    moment.max = String(lines.length - 1);
    if (newest)
        moment.value = moment.max;
    const line = lines[Math.min(Number(moment.value), lines.length - 1)];
    byId("moment-name").textContent = String(line.step);
    drawLoad(line);
    drawOver(lines);
}

// ---- tables ----

const table = (head, rows) => element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((h) => element("th", { scope: "col" }, h)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, element("th", { scope: "row" }, row[0]), ...row.slice(1).map((t) => element("td", {}, t))))));

// "task metric" -> value of each run
function drawResults(runs) {
    const rows = new Map();
    runs.forEach((run, i) => {
        for (const { results } of state.details.get(run.id)?.results ?? [])
            for (const [task, scores] of Object.entries(results.results ?? {}))
                for (const [metric, value] of Object.entries(scores ?? {})) {
                    if (typeof value !== "number" || metric.includes("stderr"))
                        continue;
                    const name = `${task} ${metric.split(",")[0]}`;
                    rows.set(name, rows.get(name) ?? runs.map(() => ""));
                    rows.get(name)[i] = number(value);
                }
    });
    byId("results-of").hidden = !rows.size;
    byId("results").replaceChildren(table(["", ...runs.map((r) => r.name)], [...rows].map(([name, values]) => [name, ...values])));
}

function drawSamples(runs) {
    const all = runs.flatMap((r) => (state.details.get(r.id)?.samples ?? []).map((s) => ({ run: r, ...s })));
    const key = JSON.stringify(all.map((s) => [s.run.id, s.file, s.line]));
    byId("samples-of").hidden = !all.length;
    if (byId("samples").dataset.key === key)
        return; // those that are unfolded stay so
    byId("samples").dataset.key = key;
    byId("samples").replaceChildren(...all.map((s) => element("details", {}, element("summary", {}, `${s.run.name} · ${s.file}`),
        element("pre", {}, JSON.stringify(s.line, null, 1)))));
}

function settingsOf(run) {
    const yaml = state.details.get(run.id)?.yaml ?? "";
    return new Map([...yaml.matchAll(/^(\w+): *(.*)$/gm)].map((m) => [m[1], m[2]]));
}

function drawSettings(runs) {
    const all = runs.map(settingsOf), keys = [...new Set(all.flatMap((m) => [...m.keys()]))].sort();
    const shown = keys.filter((k) => !byId("differ").checked || runs.length < 2 || new Set(all.map((m) => m.get(k))).size > 1);
    byId("settings-of").hidden = !keys.length;
    byId("settings-table").replaceChildren(table(["", ...runs.map((r) => r.name)], shown.map((k) => [k, ...all.map((m) => m.get(k) ?? "")])));
}

function draw() {
    const runs = chosenRuns();
    drawCharts();
    drawExperts();
    drawResults(runs);
    drawSamples(runs);
    drawSettings(runs);
    if (state.runs.length)
        say(runs.length ? "" : "Choose runs in the list.");
}

// ---- following ----

async function look() {
    clearTimeout(state.at);
    try {
        const { runs, now } = await getJson("/v1/runs");
        state.runs = runs.sort((a, b) => b.running - a.running || b.changed - a.changed);
        if (!state.touched && runs.length) // those that run, else the newest
            state.chosen = new Set(runs.filter((r, i) => r.running || i === 0).slice(0, 4).map((r) => r.id));
        drawList(now);
        await Promise.all(chosenRuns().map(follow));
        draw();
    } catch (e) {
        say(e.message);
    }
    clearTimeout(state.at);
    state.at = setTimeout(look, document.hidden ? 10 * PERIOD : PERIOD);
}

byId("grid").append(...CHARTS.map((c) => c.chart.root));
for (const id of ["axis", "smooth", "log", "routed", "moment", "differ"])
    byId(id).addEventListener("input", draw);
byId("find").addEventListener("input", () => drawList(Date.now() / 1000));
byId("theme").addEventListener("input", (e) => {
    document.documentElement.dataset.theme = e.target.value;
    draw();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("resize", draw);
look();
