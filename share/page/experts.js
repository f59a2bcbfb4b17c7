// What the experts do, as colours: which expert a token went to, the legend, and the view of one token.
import { byId, element, percent, perFrame } from "./dom.js";
import { redrawHeatmap } from "./heatmap.js";

// The first eight can be told apart with the common kinds of colour blindness.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b8a500", "#8a6bd1"];

export function colourOf(expert) {
    if (expert < COLOURS.length)
        return COLOURS[expert];
    return `hsl(${Math.round((expert * 137.508) % 360)} 65% ${expert % 2 ? 42 : 58}%)`;
}

// What is chosen in the panel. layers: the numbers of the layers that have a router.
export const view = { experts: 0, k: 0, layers: [], layer: 0, rank: 0, only: null, on: false };

const ORDINALS = ["first", "second", "third", "fourth"];
const ordinal = (i) => ORDINALS[i] ?? `${i + 1}th`;

// ---- tokens ----

// The expert and the gate that a token is coloured by, or null: the last token is never routed.
function choiceOf(token) {
    const experts = token.experts?.[view.layer];
    return experts ? { expert: experts[view.rank], gate: token.gates[view.layer][view.rank] } : null;
}

export function paintToken(span, token) {
    const choice = choiceOf(token);
    span.classList.toggle("routed", choice !== null);
    span.classList.toggle("faded", view.only !== null && choice?.expert !== view.only);
    if (choice) {
        span.style.setProperty("--expert", colourOf(choice.expert));
        span.style.setProperty("--gate", choice.gate);
    }
}

function visible(text) {
    return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "·") || "(part of a character)";
}

function bar(label, value, colour) {
    const fill = element("span", { class: "fill" });
    fill.style.width = `${Math.round(100 * Math.min(1, value))}%`;
    if (colour)
        fill.style.background = colour;
    return element("div", { class: "line" }, element("span", { class: "label" }, label),
        element("span", { class: "bar" }, fill), element("span", { class: "value" }, percent(value)));
}

function layersStrip(token) {
    const strip = element("div", { class: "strip", "aria-hidden": "true" });
    token.experts.forEach((experts, i) => {
        const cell = element("span", { class: i === view.layer ? "current" : "" });
        cell.style.background = colourOf(experts[0]);
        strip.append(cell);
    });
    return strip;
}

function tokenView(token) {
    const parts = [element("p", { class: "name" }, visible(token.text), " ", element("small", {}, percent(Math.exp(token.logprob))))];
    if (token.experts) {
        parts.push(element("h4", {}, `Layer ${view.layers[view.layer]}: gates`));
        token.experts[view.layer].forEach((e, i) => parts.push(bar(`expert ${e}`, token.gates[view.layer][i], colourOf(e))));
        parts.push(element("p", { class: "note" }, "First choice of each layer"), layersStrip(token));
    } else if (view.experts) {
        parts.push(element("p", { class: "note" }, "The last token is not fed to the model, so no expert has seen it."));
    }
    if (token.top.length) {
        parts.push(element("h4", {}, "Most likely here"));
        token.top.forEach((t) => parts.push(bar(visible(t.token), Math.exp(t.logprob))));
    }
    return parts;
}

export function showToken(span, token) {
    const box = byId("token");
    box.replaceChildren(...tokenView(token));
    box.hidden = false;
    const at = span.getClientRects()[0] ?? span.getBoundingClientRect();
    const size = box.getBoundingClientRect();
    const below = at.bottom + size.height + 10 < innerHeight;
    box.style.left = `${Math.max(8, Math.min(at.left, innerWidth - size.width - 8))}px`;
    box.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - size.height - 6)}px`;
}

export function hideToken() {
    byId("token").hidden = true;
}

// ---- the panel ----

// tokens: a function that gives all tokens that are shown; repaint: shows them again.
export function openPanel(load, tokens, repaint) {
    Object.assign(view, { experts: load.experts, k: load.experts_per_token, layers: load.layers });
    byId("sparse").hidden = !view.experts;
    byId("dense").hidden = !!view.experts;
    byId("toggle-colours").hidden = !view.experts;
    if (!view.experts)
        return;
    const layer = byId("layer");
    const choose = () => {
        view.layer = Number(layer.value);
        byId("layer-name").value = `${view.layers[view.layer]} (${view.layers[0]} to ${view.layers.at(-1)})`;
        repaint();
        redrawHeatmap();
    };
    layer.max = view.layers.length - 1;
    layer.value = Math.min(view.layer || Math.floor(view.layers.length / 2), view.layers.length - 1);
    layer.addEventListener("input", choose);
    byId("ranks").append(...Array.from({ length: view.k }, (_, i) => element("label", {},
        element("input", { type: "radio", name: "rank", value: i, checked: i === 0, onchange: () => { view.rank = i; repaint(); } }),
        ` ${ordinal(i)} choice`)));
    byId("legend").addEventListener("click", (e) => {
        const button = e.target.closest("button");
        if (!button)
            return;
        const expert = Number(button.value);
        view.only = view.only === expert ? null : expert;
        repaint();
    });
    openPanel.legend = perFrame(() => drawLegend(tokens()));
    choose();
}

export function updateLegend() {
    openPanel.legend?.();
}

function drawLegend(tokens) {
    const counts = new Array(view.experts).fill(0);
    let all = 0;
    for (const token of tokens) {
        const choice = choiceOf(token);
        if (choice) {
            counts[choice.expert]++;
            all++;
        }
    }
    const list = byId("legend");
    if (list.children.length !== view.experts)
        list.replaceChildren(...counts.map((_, i) => {
            const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
            swatch.style.background = colourOf(i);
            return element("li", {}, element("button", { type: "button", value: i, "aria-pressed": "false" },
                swatch, element("span", {}, `Expert ${i}`), element("span", { class: "value" })));
        }));
    counts.forEach((n, i) => {
        const button = list.children[i].firstChild;
        button.setAttribute("aria-pressed", String(view.only === i));
        button.lastChild.textContent = n ? percent(n / all) : "";
        button.title = `${n} of ${all} tokens; show only these`;
    });
}
