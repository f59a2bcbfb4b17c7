// One answer: it is asked for, grows, and is shown as Markdown or token by token.
//
// An answer is { model, text, finish, error, stats, tokens }. A token is { text, logprob, top, experts,
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

function takeEvent(answer, decoder, event) {
    const choice = event.choices[0];
    if (event.timings)
        answer.stats = { tokens: event.timings.predicted_n, rate: event.timings.predicted_per_second, first: event.timings.prompt_ms };
    if (!choice)
        return;
    answer.text += choice.delta.content ?? "";
    addTokens(answer, decoder, choice.logprobs?.content ?? []);
    if (choice.routed_experts)
        addRoutes(answer, choice.routed_experts);
    answer.finish = choice.finish_reason ?? answer.finish;
}

// Fills in the answer; `changed` is called for each event. Never throws.
export async function runAnswer(answer, body, signal, changed) {
    const decoder = new TextDecoder();
    Object.assign(answer, { text: "", finish: null, error: null, stats: null, tokens: [], nRouted: 0, running: true });
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

const ENDS = { length: "cut at the longest answer", stopped: "stopped" };

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

// Draws an answer; `update` shows what has changed since.
export function answerView(answer) {
    const content = element("div", { class: "content" });
    const tokens = element("div", { class: "tokens", role: "group", "aria-label": "Answer by tokens; arrow keys move" });
    const note = element("p", { class: "note" });
    const error = element("p", { class: "error", role: "alert" });
    const root = element("article", { class: "answer", "aria-label": `Answer of ${answer.model}` },
        element("h3", {}, answer.model), content, tokens, error, element("footer", {}, note, copyButton("Copy", () => answer.text)));

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
            content.replaceChildren(...markdown(answer.text));
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
