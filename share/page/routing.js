// What routing.jsonl of a run says, as pictures: the load of each expert at a step, and the entropy of each layer over the steps.
import { byId, perFrame } from "./dom.js";
import { balance, colours, drawNumbers, layout, loadOf, mix } from "./heatmap.js";

const state = { cell: null, line: null };

// cells: rows of numbers from 0 to `most`. Returns where the cells are.
function paint(canvas, cells, most, names) {
    const rows = cells.length, columns = cells[0]?.length ?? 0;
    const at = layout(canvas, rows, columns), scale = devicePixelRatio || 1;
    if (!canvas.clientWidth || !rows)
        return null;
    canvas.style.height = `${at.height}px`;
    canvas.width = Math.round(canvas.clientWidth * scale);
    canvas.height = Math.round(at.height * scale);
    const [low, middle, high] = colours(), g = canvas.getContext("2d"), gap = at.w > 5 ? 1 : 0;
    g.scale(scale, scale);
    cells.forEach((row, l) => row.forEach((x, e) => {
        const t = Math.min(1, x / most);
        g.fillStyle = `rgb(${(t < 0.5 ? mix(low, middle, 2 * t) : mix(middle, high, 2 * t - 1)).join(" ")})`;
        g.fillRect(at.left + e * at.w, l * at.h, Math.max(at.w - gap, 0.5), at.h - gap);
    }));
    g.fillStyle = g.strokeStyle = getComputedStyle(canvas).color;
    drawNumbers(g, at, cells.map((_, l) => l), names, state.cell?.layer ?? 0);
    return { ...at, g, gap };
}

// A layer that is not sparse is an empty list.
const sparse = (line) => line.layers.filter((row) => Array.isArray(row) && row.length);

function paintLoad() {
    const canvas = byId("load"), load = loadOf(sparse(state.line));
    const most = Math.max(2, ...load.flat()), { cell } = state;
    const at = paint(canvas, load, most, load[0]?.length ?? 0);
    if (at && cell && load[cell.layer]) {
        at.g.lineWidth = 2;
        at.g.strokeRect(at.left + cell.expert * at.w, cell.layer * at.h, at.w - at.gap, at.h - at.gap);
    }
    const flat = load.map((row) => Math.max(...row)), worst = flat.indexOf(Math.max(...flat));
    byId("load-text").textContent = cell && load[cell.layer]
        ? `Sparse layer ${cell.layer}, expert ${cell.expert}: ${load[cell.layer][cell.expert].toFixed(2)} × an even share`
        : `The busiest expert is in sparse layer ${worst}: ${flat[worst].toFixed(2)} × an even share. Darker or brighter is up to ${most.toFixed(1)} ×.`;
}

const soon = perFrame(() => state.line && paintLoad());

function pick(e) {
    const canvas = byId("load"), rows = sparse(state.line ?? { layers: [] });
    if (!rows.length)
        return;
    const at = layout(canvas, rows.length, rows[0].length);
    const layer = Math.floor(e.offsetY / at.h), expert = Math.floor((e.offsetX - at.left) / at.w);
    state.cell = rows[layer] && expert >= 0 && expert < rows[0].length ? { layer, expert } : null;
    soon();
}

function step(e) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }, rows = sparse(state.line ?? { layers: [] });
    if (!moves[e.key] || !rows.length)
        return;
    e.preventDefault();
    const from = state.cell ?? { layer: 0, expert: 0 }, clip = (x, n) => Math.min(n - 1, Math.max(0, x));
    state.cell = { layer: clip(from.layer + moves[e.key][0], rows.length), expert: clip(from.expert + moves[e.key][1], rows[0].length) };
    soon();
}

byId("load").addEventListener("pointermove", pick);
byId("load").addEventListener("pointerleave", () => { state.cell = null; soon(); });
byId("load").addEventListener("keydown", step);

export function drawLoad(line) {
    state.line = line;
    soon();
}

export function drawOver(lines) {
    const columns = lines.map((line) => sparse(line).map(balance)), rows = columns[0]?.length ?? 0;
    const cells = Array.from({ length: rows }, (_, l) => columns.map((c) => c[l] ?? 0));
    paint(byId("over"), cells, 1, 0);
    const last = columns.at(-1) ?? [], worst = last.indexOf(Math.min(...last));
    byId("over-text").textContent = rows
        ? `Steps ${lines[0].step} to ${lines.at(-1).step}. Lowest at the end: sparse layer ${worst}, ${last[worst].toFixed(3)}.` : "";
}
