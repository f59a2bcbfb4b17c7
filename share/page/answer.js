// One answer: it is asked for, grows, and is shown as Markdown or token by token.
//
// An answer is { model, text, reasoning, calls, json, finish, error, stats, tokens }: calls are { id, name, arguments } of tools, json says
// that the text was asked for as JSON. A token is { text, logprob, top, experts,
// gates }; experts and gates are lists of layers, and come one event after the token.
import { streamChat } from "./client.js";
import { copyButton, element, perFrame } from "./dom.js";
import { hideToken, paintToken, showToken, updateLegend, view } from "./experts.js";
import { markdown } from "./markdown.js";

// ---- asking ----

// Tokens may end inside a character: its text belongs to the token that completes it.
function addTokens(answer, decoder, entries) {
    for (const e of entries) {
        const text = decoder.decode(new Uint8Array(e.bytes), { stream: true });
        const top = e.top_logprobs.map((t) => ({ token: t.token, logprob: t.logprob }));
        answer.tokens.push({ text, logprob: e.logprob, top, experts: null, gates: null });
    }
}

function addRoutes(answer, routed) {
    routed.experts.forEach((experts, i) => {
        Object.assign(answer.tokens[answer.nRouted], { experts, gates: routed.gates[i] });
        answer.nRouted++;
    });
}

// Pieces of calls: the first of each has its name, the others go on with its arguments.
function addCalls(answer, pieces) {
    for (const piece of pieces) {
        const at = piece.index ?? 0;
        if (!Number.isInteger(at) || at < 0 || at > answer.calls.length)
            continue;
        const call = answer.calls[at] ??= { id: "", name: "", arguments: "" };
        call.id ||= piece.id ?? "";
        call.name += piece.function?.name ?? "";
        call.arguments += piece.function?.arguments ?? "";
    }
}

function takeEvent(answer, decoder, event) {
    const choice = event.choices[0];
    if (event.timings)
        answer.stats = { tokens: event.timings.predicted_n, rate: event.timings.predicted_per_second, first: event.timings.prompt_ms };
    if (!choice)
        return;
    answer.text += choice.delta.content ?? "";
    answer.reasoning += choice.delta.reasoning_content ?? choice.delta.reasoning ?? "";
    addCalls(answer, choice.delta.tool_calls ?? []);
    addTokens(answer, decoder, choice.logprobs?.content ?? []);
    if (choice.routed_experts)
        addRoutes(answer, choice.routed_experts);
    answer.finish = choice.finish_reason ?? answer.finish;
}

// Fills in the answer; `changed` is called for each event. Never throws.
export async function runAnswer(answer, body, signal, changed) {
    const decoder = new TextDecoder();
    Object.assign(answer, { text: "", reasoning: "", calls: [], finish: null, error: null, stats: null, tokens: [], nRouted: 0, running: true });
    try {
        for await (const event of streamChat(body, signal)) {
            takeEvent(answer, decoder, event);
            changed();
        }
    } catch (e) {
        if (e.name === "AbortError")
            answer.finish = "stopped";
        else
            Object.assign(answer, { error: e.message, status: e.status });
    }
    answer.running = false;
    changed();
}

// ---- showing ----

const ENDS = { length: "cut at the longest answer", stopped: "stopped", tool_calls: "calls a tool" };

function footer(answer) {
    const parts = [];
    if (answer.stats?.tokens)
        parts.push(`${answer.stats.tokens} tokens`);
    if (answer.stats?.rate)
        parts.push(`${answer.stats.rate.toFixed(1)} tokens/s`);
    if (answer.stats?.first)
        parts.push(`prompt ${(answer.stats.first / 1000).toFixed(2)} s`);
    if (ENDS[answer.finish])
        parts.push(ENDS[answer.finish]);
    return parts.join(" · ");
}

// The tokens whose text is part of the answer: the one that ends it is not.
export function shownTokens(answer) {
    const shown = [];
    let length = 0;
    for (const token of answer.tokens ?? []) {
        length += token.text.length;
        if (length > answer.text.length)
            break;
        shown.push(token);
    }
    return shown;
}

// Arrow keys move between tokens: one stop of the tab key for all of them.
function moveFocus(e) {
    const spans = [...e.currentTarget.children];
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -spans.length, End: spans.length }[e.key];
    const at = spans.indexOf(document.activeElement);
    if (!step || at < 0)
        return;
    e.preventDefault();
    const to = spans[Math.max(0, Math.min(spans.length - 1, at + step))];
    spans[at].tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
}

function pretty(text) {
    try {
        return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
        return null; // not whole yet, or not JSON
    }
}

const foldable = (kind, title, ...inside) => element("details", { class: kind }, element("summary", {}, title), ...inside);

// What comes before the text: reasoning, open while it is all there is, and after it: calls, open. A reader's own fold stays.
function extras(answer) {
    const reasoning = foldable("reasoning", "Reasoning", element("div", { class: "content" }));
    const calls = element("div", { class: "calls" });
    let chosen = false;
    reasoning.querySelector("summary").addEventListener("click", () => { chosen = true; });
    return { reasoning, calls, draw() {
        reasoning.hidden = !answer.reasoning;
        if (answer.reasoning)
            reasoning.lastChild.replaceChildren(...markdown(answer.reasoning));
        if (!chosen)
            reasoning.open = !!answer.running && !answer.text && !answer.calls?.length;
        const all = answer.calls ?? [];
        while (calls.children.length > all.length)
            calls.lastChild.remove();
        all.forEach((call, i) => {
            const box = calls.children[i] ?? calls.appendChild(foldable("call", "", element("pre", { tabindex: "0" })));
            if (!box.dataset.seen)
                box.dataset.seen = box.open = true;
            box.firstChild.textContent = `Call of ${call.name || "a tool"}`;
            box.lastChild.textContent = pretty(call.arguments) ?? call.arguments;
        });
    } };
}

const contentOf = (answer) => {
    const json = answer.json ? pretty(answer.text) : null;
    return json === null ? markdown(answer.text) : markdown(`\`\`\`\`\`\`json\n${json}\n\`\`\`\`\`\``);
};

// Draws an answer; `update` shows what has changed since.
export function answerView(answer) {
    const content = element("div", { class: "content" });
    const tokens = element("div", { class: "tokens", role: "group", "aria-label": "Answer by tokens; arrow keys move" });
    const note = element("p", { class: "note" });
    const error = element("p", { class: "error", role: "alert" });
    const more = extras(answer);
    const root = element("article", { class: "answer", "aria-label": `Answer of ${answer.model}` },
        element("h3", {}, answer.model), more.reasoning, content, tokens, more.calls, error, element("footer", {}, note, copyButton("Copy", () => answer.text)));

    const find = (e) => {
        const span = e.target.closest?.(".tok");
        return span && { span, token: answer.tokens[[...tokens.children].indexOf(span)] };
    };
    const show = (e) => {
        const found = find(e);
        if (found?.token)
            showToken(found.span, found.token);
    };
    tokens.addEventListener("mouseover", show);
    tokens.addEventListener("focusin", show);
    tokens.addEventListener("mouseout", hideToken);
    tokens.addEventListener("focusout", hideToken);
    tokens.addEventListener("keydown", moveFocus);

    const drawTokens = () => {
        const shown = shownTokens(answer);
        while (tokens.children.length > shown.length)
            tokens.lastChild.remove();
        for (let i = tokens.children.length; i < shown.length; i++)
            tokens.append(element("span", { class: "tok", tabindex: i ? -1 : 0, "aria-describedby": "token" }, shown[i].text));
        shown.forEach((token, i) => paintToken(tokens.children[i], token));
    };
    const draw = () => {
        const coloured = view.on && answer.tokens?.length > 0;
        content.hidden = coloured;
        tokens.hidden = !coloured;
        if (coloured)
            drawTokens();
        else
            content.replaceChildren(...contentOf(answer));
        more.draw();
        root.classList.toggle("running", !!answer.running);
        root.setAttribute("aria-busy", String(!!answer.running));
        note.textContent = view.on && !coloured && answer.text ? "Details of tokens are gone with the page that showed them." : footer(answer);
        error.textContent = answer.error ?? "";
        error.hidden = !answer.error;
        updateLegend();
    };
    draw();
    return { root, update: perFrame(draw) };
}
