// A chart of lines on a canvas: several series over one axis, with the values under the pointer as text.
import { element, perFrame } from "./dom.js";

const LEFT = 52, BOTTOM = 20, TOP = 6, RIGHT = 10;

export function number(x) {
    if (x === null || x === undefined || !Number.isFinite(x))
        return "none";
    const size = Math.abs(x);
    if (size >= 1e9)
        return `${(x / 1e9).toPrecision(3)} G`;
    if (size >= 1e6)
        return `${(x / 1e6).toPrecision(3)} M`;
    if (size >= 1e4)
        return `${(x / 1e3).toPrecision(3)} k`;
    return size && size < 1e-3 ? x.toExponential(2) : String(Number(x.toPrecision(4)));
}

// Round numbers between low and high, some n of them.
function ticks(low, high, n) {
    const raw = (high - low) / n || 1, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const out = [];
    for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-9; t += step)
        out.push(Number(t.toPrecision(12)));
    return out;
}

function decades(low, high) {
    const out = [];
    for (let p = Math.floor(low); p <= Math.ceil(high); p++)
        for (const m of [1, 2, 5])
            if (p + Math.log10(m) >= low && p + Math.log10(m) <= high)
                out.push(p + Math.log10(m));
    return out;
}

// An exponential moving average that is right from the first point on.
export function smoothed(points, weight) {
    if (!weight)
        return points;
    let sum = 0, mass = 0;
    return points.map(([x, y]) => {
        sum = weight * sum + y;
        mass = weight * mass + 1;
        return [x, sum / mass];
    });
}

export class Chart {
    // series: [{ name, colour, points: [[x, y], ...], dots }]
    constructor(title, options = {}) {
        this.title = title;
        this.options = options;
        this.series = [];
        this.at = null;
        this.canvas = element("canvas", { role: "img", tabindex: "0", "aria-label": title });
        this.text = element("p", { class: "note", "aria-live": "polite" });
        this.root = element("figure", { class: "chart" }, element("figcaption", {}, title), this.canvas, this.text);
        this.draw = perFrame(() => this.paint());
        this.canvas.addEventListener("pointermove", (e) => this.point(e.offsetX));
        this.canvas.addEventListener("pointerleave", () => this.point(null));
        this.canvas.addEventListener("keydown", (e) => this.move(e));
        new ResizeObserver(this.draw).observe(this.canvas);
    }

    set(series, log) {
        this.series = series.filter((s) => s.points.length);
        this.log = log;
        this.root.hidden = !this.series.length;
        this.draw();
    }

    value(y) {
        return this.log ? Math.log10(Math.max(y, 1e-12)) : y;
    }

    range() {
        const xs = this.series.flatMap((s) => [s.points[0][0], s.points.at(-1)[0]]);
        let low = Infinity, high = -Infinity;
        for (const s of this.series)
            for (const [, y] of s.points) {
                const v = this.value(y);
                low = Math.min(low, v);
                high = Math.max(high, v);
            }
        if (this.options.zero && !this.log)
            low = Math.min(0, low);
        const room = (high - low || Math.abs(high) || 1) * 0.05;
        return { x0: Math.min(...xs), x1: Math.max(...xs, Math.min(...xs) + 1e-9), y0: low - (this.options.zero && low === 0 ? 0 : room), y1: high + room };
    }

    point(x) {
        this.at = x;
        this.draw();
    }

    move(e) {
        const step = { ArrowLeft: -8, ArrowRight: 8 }[e.key];
        if (!step)
            return;
        e.preventDefault();
        this.point(Math.min(this.canvas.clientWidth - RIGHT, Math.max(LEFT, (this.at ?? LEFT) + step)));
    }

    paint() {
        const { canvas } = this;
        const w = canvas.clientWidth, h = canvas.clientHeight, scale = devicePixelRatio || 1;
        if (!w || !this.series.length)
            return;
        canvas.width = Math.round(w * scale);
        canvas.height = Math.round(h * scale);
        const g = canvas.getContext("2d"), r = this.range();
        g.scale(scale, scale);
        const px = (x) => LEFT + (x - r.x0) / (r.x1 - r.x0) * (w - LEFT - RIGHT);
        const py = (v) => h - BOTTOM - (v - r.y0) / (r.y1 - r.y0) * (h - BOTTOM - TOP);
        this.axes(g, r, px, py, w, h);
        for (const s of this.series)
            this.line(g, s, px, py);
        this.readout(g, r, px, py, w, h);
    }

    axes(g, r, px, py, w, h) {
        const style = getComputedStyle(this.canvas);
        g.font = "11px system-ui, sans-serif";
        g.fillStyle = style.color;
        g.strokeStyle = style.getPropertyValue("--line-of-chart") || "#8884";
        g.lineWidth = 1;
        g.textAlign = "right";
        g.textBaseline = "middle";
        for (const v of this.log ? decades(r.y0, r.y1) : ticks(r.y0, r.y1, 5)) {
            g.beginPath();
            g.moveTo(LEFT, Math.round(py(v)) + 0.5);
            g.lineTo(w - RIGHT, Math.round(py(v)) + 0.5);
            g.stroke();
            g.fillText(number(this.log ? 10 ** v : v), LEFT - 5, py(v));
        }
        g.textAlign = "center";
        g.textBaseline = "alphabetic";
        for (const x of ticks(r.x0, r.x1, Math.max(2, Math.floor(w / 90))))
            g.fillText(number(x), px(x), h - 5);
    }

    line(g, s, px, py) {
        g.strokeStyle = g.fillStyle = s.colour;
        g.lineWidth = s.faint ? 1 : 1.75;
        g.globalAlpha = s.faint ? 0.3 : 1;
        g.setLineDash(s.dots ? [5, 3] : []);
        g.beginPath();
        for (const [x, y] of s.points)
            g.lineTo(px(x), py(this.value(y)));
        g.stroke();
        g.setLineDash([]);
        if (s.dots || s.points.length === 1)
            for (const [x, y] of s.points) {
                g.beginPath();
                g.arc(px(x), py(this.value(y)), 2.5, 0, 7);
                g.fill();
            }
        g.globalAlpha = 1;
    }

    readout(g, r, px, py, w, h) {
        const shown = this.series.filter((s) => !s.faint);
        let x = r.x1;
        if (this.at !== null) {
            x = r.x0 + (Math.min(w - RIGHT, Math.max(LEFT, this.at)) - LEFT) / (w - LEFT - RIGHT) * (r.x1 - r.x0);
            g.strokeStyle = getComputedStyle(this.canvas).color;
            g.lineWidth = 1;
            g.beginPath();
            g.moveTo(px(x), TOP);
            g.lineTo(px(x), h - BOTTOM);
            g.stroke();
        }
        const near = (s) => s.points.reduce((a, b) => (Math.abs(b[0] - x) <= Math.abs(a[0] - x) ? b : a));
        this.text.textContent = shown.map((s) => {
            const p = near(s);
            return `${s.name}: ${number(p[1])}${this.at === null ? "" : ` at ${number(p[0])}`}`;
        }).join(" · ");
    }
}
