// The load of the experts, layer by layer, as a picture that follows the server.
import { byId, element } from "./dom.js";

const PERIOD = 1000; // milliseconds between looks at the server
const SPAN = 10;     // looks that "last 10 seconds" goes back

const state = { history: [], cell: null, shown: null, timer: null, fetch: null };

// Counts since the start, or the difference of two looks.
function countsShown() {
    const last = state.history.at(-1);
    const live = document.querySelector("input[name=span]:checked").value === "live";
    if (!last || !live)
        return last?.counts ?? [];
    const first = state.history[0];
    return last.counts.map((row, l) => row.map((n, e) => n - first.counts[l][e]));
}

// Each expert as a multiple of an even share; a layer without tokens is all 0.
export function loadOf(counts) {
    return counts.map((row) => {
        const sum = row.reduce((a, b) => a + b, 0);
        return row.map((n) => (sum ? n * row.length / sum : 0));
    });
}

// ---- drawing ----

export function mix(a, b, t) {
    return a.map((x, i) => Math.round(x + (b[i] - x) * t));
}

const toRgb = (text) => text.trim().match(/[\da-f]{2}/gi).map((h) => parseInt(h, 16));

export function colours() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const theme = document.documentElement.dataset.theme || (dark ? "dark" : "light");
    return ["low", "middle", "high"].map((n) => toRgb(getComputedStyle(document.documentElement).getPropertyValue(`--heat-${n}-${theme}`)));
}

// Where the cells are: w by h pixels each, beside the numbers of layers and above those of experts.
export function layout(canvas, rows, columns) {
    const left = 22, bottom = 16;
    const h = Math.max(4, Math.min(14, Math.floor(380 / rows)));
    return { left, bottom, h, w: (canvas.clientWidth - left) / columns, height: rows * h + bottom };
}

// Numbers along an axis, as many as there is room for.
export function drawNumbers(g, { left, h, w, height, bottom }, layers, columns, chosen) {
    const every = (room, size) => Math.max(1, Math.ceil(room / size));
    g.font = "10px system-ui, sans-serif";
    g.textBaseline = "middle";
    g.textAlign = "right";
    layers.forEach((n, l) => {
        const own = l === chosen;
        if (!own && (l % every(13, h) || Math.abs(l - chosen) * h < 10))
            return;
        g.font = `${own ? "bold " : ""}10px system-ui, sans-serif`;
        g.fillText(n, left - 5, (l + 0.5) * h);
    });
    g.font = "10px system-ui, sans-serif";
    g.textAlign = "center";
    for (let e = 0; e < columns; e += every(18, w))
        g.fillText(e, left + (e + 0.5) * w, height - bottom / 2);
}

function draw() {
    const canvas = byId("heat");
    const load = loadOf(countsShown());
    state.shown = load;
    const rows = load.length, columns = load[0]?.length ?? 0;
    if (!canvas.clientWidth || !rows)
        return;
    const at = layout(canvas, rows, columns), scale = devicePixelRatio || 1;
    canvas.style.height = `${at.height}px`;
    canvas.width = Math.round(canvas.clientWidth * scale);
    canvas.height = Math.round(at.height * scale);
    const most = Math.max(2, ...load.flat());
    const [low, middle, high] = colours();
    const g = canvas.getContext("2d");
    g.scale(scale, scale);
    const gap = at.w > 5 ? 1 : 0;
    load.forEach((row, l) => row.forEach((x, e) => {
        const t = x / most;
        g.fillStyle = `rgb(${(t < 0.5 ? mix(low, middle, 2 * t) : mix(middle, high, 2 * t - 1)).join(" ")})`;
        g.fillRect(at.left + e * at.w, l * at.h, at.w - gap, at.h - gap);
    }));
    g.fillStyle = g.strokeStyle = getComputedStyle(canvas).color;
    drawNumbers(g, at, state.history.at(-1).layers, columns, Number(byId("layer").value));
    if (state.cell) {
        g.lineWidth = 2;
        g.strokeRect(at.left + state.cell.expert * at.w, state.cell.layer * at.h, at.w - gap, at.h - gap);
    }
    byId("heat-most").textContent = `${most.toFixed(1)} × an even share`;
    describe(load);
}

// 1: all experts are used alike; 0: one alone.
export function balance(row) {
    const sum = row.reduce((a, b) => a + b, 0);
    if (!sum)
        return 0;
    return row.reduce((h, x) => (x ? h - (x / sum) * Math.log(x / sum) : h), 0) / Math.log(row.length);
}

function describe(load) {
    const { cell } = state;
    const layers = state.history.at(-1).layers;
    const idle = load.every((row) => row.every((x) => x === 0));
    byId("heat-text").textContent = cell
        ? `Layer ${layers[cell.layer]}, expert ${cell.expert}: ${load[cell.layer][cell.expert].toFixed(2)} × an even share`
        : idle ? "No tokens in this time." : "Rows are layers, columns are experts.";
    const body = byId("heat-table").tBodies[0];
    if (!body.closest("details").open)
        return;
    body.replaceChildren(...load.map((row, l) => {
        const busiest = row.indexOf(Math.max(...row));
        return element("tr", {}, element("th", { scope: "row" }, String(layers[l])), element("td", {}, `expert ${busiest}`),
            element("td", {}, `${row[busiest].toFixed(2)} ×`), element("td", {}, balance(row).toFixed(2)));
    }));
}

// ---- following the server ----

async function look() {
    try {
        const load = await state.fetch();
        if (state.history.length && load.tokens < state.history.at(-1).tokens)
            state.history = []; // the server was started again
        state.history.push(load);
        state.history.splice(0, state.history.length - SPAN - 1);
        draw();
    } catch { /* the next look may succeed */ }
}

// fetchLoad: gets /v1/experts. Looks only while the picture can be seen.
export function openHeatmap(fetchLoad) {
    const canvas = byId("heat");
    state.fetch = fetchLoad;
    state.timer = setInterval(() => {
        if (!document.hidden && canvas.offsetParent !== null)
            look();
    }, PERIOD);
    look();
    new ResizeObserver(() => draw()).observe(canvas.parentElement);
    document.querySelectorAll("input[name=span]").forEach((r) => r.addEventListener("change", draw));
    canvas.closest("section").querySelector("details").addEventListener("toggle", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    const point = (cell) => {
        state.cell = cell;
        draw();
    };
    canvas.addEventListener("mousemove", (e) => {
        if (!state.shown?.length)
            return;
        const { left, w, h } = layout(canvas, state.shown.length, state.shown[0].length);
        const cell = { layer: Math.floor(e.offsetY / h), expert: Math.floor((e.offsetX - left) / w) };
        point(state.shown[cell.layer]?.[cell.expert] === undefined ? null : cell);
    });
    canvas.addEventListener("mouseleave", () => point(null));
    canvas.addEventListener("blur", () => point(null));
    canvas.addEventListener("keydown", (e) => {
        const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
        if (!step || !state.shown?.length)
            return;
        e.preventDefault();
        const at = state.cell ?? { layer: 0, expert: 0 };
        const within = (x, n) => Math.max(0, Math.min(n - 1, x));
        point(state.cell ? { layer: within(at.layer + step[0], state.shown.length), expert: within(at.expert + step[1], state.shown[0].length) } : at);
    });
}

export const redrawHeatmap = () => { if (state.history.length) draw(); };
