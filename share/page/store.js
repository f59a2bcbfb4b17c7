// What the browser keeps: conversations and settings, in localStorage.
//
// A conversation is { id, title, compare, turns: [{ question, answers: [answer, ...] }] } with one
// answer, or two side by side. Details of tokens are large and stay in memory (see answer.js).

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

const isAnswer = (a) => a && typeof a.text === "string" && typeof a.model === "string";
const isTurn = (t) => t && typeof t.question === "string" && Array.isArray(t.answers) && t.answers.every(isAnswer);
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
