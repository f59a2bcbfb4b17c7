// What the browser keeps: conversations and settings, in localStorage.
//
// A conversation is { id, title, compare, turns: [{ question, answers: [answer, ...], results, versions, version }] } with one
// answer, or two side by side. versions: [{ question, answers }], what was asked and answered in this place before, of which the turn shows
// one; results: [{ id, name, content }] of tools, in the place of a question. Details of tokens are large and stay in memory (see answer.js).

const PREFIX = "pesc.";
const TRANSIENT = new Set(["tokens", "nRouted", "running"]);

function read(name, otherwise) {
    try {
        return JSON.parse(localStorage.getItem(PREFIX + name)) ?? otherwise;
    } catch {
        return otherwise; // forbidden, or written by something else
    }
}

// False: the browser has no room, or forbids it.
function write(name, value) {
    try {
        localStorage.setItem(PREFIX + name, JSON.stringify(value, (k, v) => (TRANSIENT.has(k) ? undefined : v)));
        return true;
    } catch {
        return false;
    }
}

const isText = (t) => typeof t === "string";
const isList = (of, list) => list === undefined || (Array.isArray(list) && list.every(of));
const isCall = (c) => c && isText(c.id) && isText(c.name) && isText(c.arguments);
const isResult = (r) => r && isText(r.id) && isText(r.name) && isText(r.content);
const isAnswer = (a) => a && isText(a.text) && isText(a.model) && isText(a.reasoning ?? "") && isList(isCall, a.calls);
const isVersion = (t) => t && isText(t.question) && Array.isArray(t.answers) && t.answers.every(isAnswer);
const isTurn = (t) => isVersion(t) && isList(isResult, t.results) && isList(isVersion, t.versions);
const isConversation = (c) => c && typeof c.id === "string" && typeof c.title === "string" &&
    Array.isArray(c.turns) && c.turns.every(isTurn);

export function loadConversations() {
    const all = read("conversations", []);
    return Array.isArray(all) ? all.filter(isConversation) : [];
}

export const saveConversations = (all) => write("conversations", all.filter((c) => c.turns.length));

export function loadSettings() {
    const s = read("settings", {});
    return s && typeof s === "object" ? s : {};
}

export const saveSettings = (s) => write("settings", s);

export function newConversation() {
    return { id: crypto.randomUUID?.() ?? String(Date.now() + Math.random()), title: "New conversation", compare: false, turns: [] };
}
