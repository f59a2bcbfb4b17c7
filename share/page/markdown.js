// Markdown as elements: headings, paragraphs, lists, quotations, tables, code, emphasis, links.
//
// The text is what a model wrote, so it is hostile. It becomes text nodes and elements of a fixed
// set, never HTML. Nothing is fetched: images are shown as their text, and a link leads only where
// a reader clicks it. Every loop advances, and a search that found nothing is not repeated, so the
// time is linear in the text for all practical inputs.
import { copyButton, element } from "./dom.js";
import { formula } from "./math.js";

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]{0,30})/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const ITEM = /^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const DISPLAY = /^\s*(?:\$\$|\\\[)/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const MARKS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];
const DEPTH = 12; // of nesting
const FORMULA = 4000; // characters of the longest, and 60 lines

// ---- inside a line ----

function safeLink(text) {
    try {
        const url = new URL(text);
        return url.protocol === "https:" || url.protocol === "http:" ? url.href : null;
    } catch {
        return null;
    }
}

// Where the mark ends that opens at i, or -1. `nowhere` remembers marks without an end.
function findClose(text, mark, from, nowhere) {
    if (nowhere.has(mark))
        return -1;
    for (let at = text.indexOf(mark, from); at >= 0; at = text.indexOf(mark, at + mark.length)) {
        const inWord = mark[0] === "_" && /\w/.test(text[at + mark.length] ?? "");
        if (at > from && !/\s/.test(text[at - 1]) && !inWord)
            return at;
    }
    nowhere.add(mark);
    return -1;
}

// Where a formula begins and ends. A dollar that is followed by a space, or ends before a digit, is money.
const FORMULAS = [["$$", "$$", true], ["\\[", "\\]", true], ["\\(", "\\)", false], ["$", "$", false]];

function takeFormula(text, i, nowhere) {
    const found = FORMULAS.find(([open]) => text.startsWith(open, i));
    if (!found || nowhere.has(found[0]))
        return null;
    const [open, close, display] = found, from = i + open.length, near = text.slice(from, from + FORMULA);
    const length = near.indexOf(close), inside = near.slice(0, length), end = from + length;
    if (length < 0) {
        if (from + FORMULA >= text.length)
            nowhere.add(open);
        return null;
    }
    if (open === "$" && (/^\s|\s$|\n\n/.test(inside) || /\d/.test(text[end + 1] ?? "")))
        return null;
    const math = formula(inside, display);
    return math && [math, end + close.length];
}

// [element, index after it] of what begins at i, or null.
function takeInline(text, i, depth, nowhere) {
    if (text[i] === "`") {
        const ticks = text.slice(i).match(/^`+/)[0];
        const end = nowhere.has(ticks) ? -1 : text.indexOf(ticks, i + ticks.length);
        if (end < 0) {
            nowhere.add(ticks);
            return null;
        }
        return [element("code", {}, text.slice(i + ticks.length, end).trim()), end + ticks.length];
    }
    const image = text.startsWith("![", i); // a link to it: nothing is fetched
    if ((image || text[i] === "[") && !nowhere.has("](")) {
        const middle = text.indexOf("](", i);
        const end = middle < 0 ? -1 : text.indexOf(")", middle);
        if (end < 0) {
            nowhere.add("](");
            return null;
        }
        const url = safeLink(text.slice(middle + 2, end).trim());
        const label = image ? `image: ${text.slice(i + 2, middle)}` : text.slice(i + 1, middle);
        if (!url || label.includes("["))
            return null;
        return [element("a", { href: url, target: "_blank", rel: "noopener noreferrer", title: url }, label), end + 1];
    }
    const mark = MARKS.find(([m]) => text.startsWith(m, i));
    if (!mark || depth > DEPTH || /\s/.test(text[i + mark[0].length] ?? " "))
        return null;
    if (mark[0][0] === "_" && /\w/.test(text[i - 1] ?? ""))
        return null;
    const end = findClose(text, mark[0], i + mark[0].length, nowhere);
    if (end < 0)
        return null;
    return [element(mark[1], {}, ...inline(text.slice(i + mark[0].length, end), depth + 1)), end + mark[0].length];
}

function inline(text, depth = 0) {
    const nodes = [];
    const nowhere = new Set();
    let plain = "";
    for (let i = 0; i < text.length;) {
        const math = text[i] === "$" || text[i] === "\\" ? takeFormula(text, i, nowhere) : null;
        const escaped = !math && text[i] === "\\" && /[\\`*_{}[\]()#+\-.!~|>$]/.test(text[i + 1] ?? "");
        const found = math ?? (escaped || !"`![*_~".includes(text[i]) ? null : takeInline(text, i, depth, nowhere));
        if (found) {
            nodes.push(plain, found[0]);
            plain = "";
            i = found[1];
        } else {
            plain += escaped ? text[i + 1] : text[i];
            i += escaped ? 2 : 1;
        }
    }
    return [...nodes, plain].filter((n) => n !== "");
}

// ---- blocks: each takes lines from `at` on and returns [element, next line] ----

function takeCode(lines, at, fence) {
    const close = new RegExp(`^ {0,3}${fence[1][0]}{${fence[1].length},}\\s*$`);
    let end = at + 1;
    while (end < lines.length && !close.test(lines[end]))
        end++;
    const code = lines.slice(at + 1, end).join("\n");
    const bar = element("div", { class: "code-bar" }, element("span", {}, fence[2] || "text"), copyButton("Copy", () => code));
    return [element("div", { class: "code" }, bar, element("pre", { tabindex: "0" }, element("code", {}, code))), end + 1];
}

function takeList(lines, at, depth) {
    const [, space, number] = lines[at].match(ITEM);
    const list = element(number ? "ol" : "ul", number && number !== "1" ? { start: Number(number) } : {});
    const indent = space.length;
    while (at < lines.length) {
        const item = lines[at].match(ITEM);
        if (!item || item[1].length < indent || !item[2] !== !number)
            break;
        const own = [item[3]], inner = lines[at].length - item[3].length;
        for (at++; at < lines.length; at++) {
            const deeper = lines[at].match(/^\s*/)[0].length > indent;
            if (!deeper && (lines[at].trim() !== "" || !/^\s+\S/.test(lines[at + 1] ?? "")))
                break;
            own.push(lines[at].slice(Math.min(inner, lines[at].match(/^\s*/)[0].length)));
        }
        list.append(element("li", {}, ...blocks(own, depth + 1, true)));
        while (at + 1 < lines.length && lines[at].trim() === "" && ITEM.test(lines[at + 1]))
            at++; // items with empty lines between them
    }
    return [list, at];
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((c) => c.trim());

const beginsTable = (line, next) => line.includes("|") && (next ?? "").includes("-") &&
    cells(next).every((c) => /^:?-+:?$/.test(c));

function takeTable(lines, at) {
    const head = cells(lines[at]);
    const body = element("tbody");
    let end = at + 2;
    for (; end < lines.length && lines[end].includes("|") && lines[end].trim() !== ""; end++) {
        const row = cells(lines[end]);
        body.append(element("tr", {}, ...head.map((_, i) => element("td", {}, ...inline(row[i] ?? "")))));
    }
    const titles = element("tr", {}, ...head.map((h) => element("th", { scope: "col" }, ...inline(h))));
    return [element("div", { class: "table" }, element("table", {}, element("thead", {}, titles), body)), end];
}

function takeQuote(lines, at, depth) {
    let end = at;
    while (end < lines.length && /^\s{0,3}>/.test(lines[end]))
        end++;
    const inner = lines.slice(at, end).map((l) => l.replace(/^\s{0,3}> ?/, ""));
    return [element("blockquote", {}, ...blocks(inner, depth + 1)), end];
}

// A formula that stands alone, over several lines, with markup in none of them.
function takeDisplay(lines, at) {
    const [open, close] = FORMULAS.find(([o, , display]) => display && lines[at].trim().startsWith(o)) ?? [];
    if (!open)
        return null;
    let end = at;
    const most = Math.min(lines.length, at + 60);
    while (end < most && !lines[end].trim().slice(end === at ? open.length : 0).endsWith(close))
        end++;
    if (end === most)
        return null;
    const math = formula(lines.slice(at, end + 1).join("\n").trim().slice(open.length, -close.length), true);
    return math && [element("div", { class: "formula" }, math), end + 1];
}

const begins = (line, next) => FENCE.test(line) || HEADING.test(line) || ITEM.test(line) || RULE.test(line) ||
    /^\s{0,3}>/.test(line) || beginsTable(line, next);

function takeParagraph(lines, at, bare) {
    let end = at + 1;
    while (end < lines.length && lines[end].trim() !== "" && !begins(lines[end], lines[end + 1]) && !DISPLAY.test(lines[end]))
        end++;
    const nodes = inline(lines.slice(at, end).map((l) => l.trimEnd()).join("\n")); // indented as it was
    return [bare && end === lines.length ? nodes : [element("p", {}, ...nodes)], end];
}

function blocks(lines, depth = 0, bare = false) {
    const out = [];
    for (let at = 0; at < lines.length;) {
        const line = lines[at];
        const fence = line.match(FENCE);
        const heading = line.match(HEADING);
        const math = DISPLAY.test(line) ? takeDisplay(lines, at) : null;
        let made;
        if (line.trim() === "")
            made = [null, at + 1];
        else if (math)
            made = math;
        else if (fence)
            made = takeCode(lines, at, fence);
        else if (heading)
            made = [element(`h${Math.min(6, heading[1].length + 2)}`, {}, ...inline(heading[2])), at + 1];
        else if (RULE.test(line))
            made = [element("hr"), at + 1];
        else if (depth < DEPTH && ITEM.test(line))
            made = takeList(lines, at, depth);
        else if (depth < DEPTH && /^\s{0,3}>/.test(line))
            made = takeQuote(lines, at, depth);
        else if (beginsTable(line, lines[at + 1]))
            made = takeTable(lines, at);
        else
            made = takeParagraph(lines, at, bare && at === 0);
        out.push(made[0]);
        at = made[1];
    }
    return out.flat().filter((n) => n !== null);
}

// The elements of a text.
export const markdown = (text) => blocks(text.replace(/\r\n?/g, "\n").split("\n"));
