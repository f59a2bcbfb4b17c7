// The page: conversations, questions, settings.
import { answerView, runAnswer, shownTokens } from "./answer.js";
import { getJson, setKey } from "./client.js";
import { byId, element } from "./dom.js";
import { hideToken, openPanel, view } from "./experts.js";
import { openHeatmap, redrawHeatmap } from "./heatmap.js";
import { loadConversations, loadSettings, newConversation, saveConversations, saveSettings } from "./store.js";

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "repetition_penalty", "presence_penalty", "frequency_penalty"];
const TOP = 5; // alternatives that are shown for a token
const NARROW = matchMedia("(max-width: 62rem)"); // the panel covers the conversation

const state = { conversations: loadConversations(), talk: newConversation(), settings: loadSettings(), models: [], views: [], abort: null, editing: null };

// ---- showing ----

const say = (text) => { byId("status").textContent = text; };

function save() {
    if (!saveConversations(state.conversations))
        say("The browser has no room to keep this conversation.");
}

const nearEnd = () => {
    const t = byId("talk");
    return t.scrollHeight - t.scrollTop - t.clientHeight < 80;
};

function toEnd() {
    const t = byId("talk");
    t.scrollTop = t.scrollHeight;
}

const act = (label, f, more = {}) => element("button", { class: "small", type: "button", onclick: f, ...more }, label);

// The versions of a turn, one of which is shown.
function versionActions(turn, last) {
    const all = turn.versions ?? [], at = turn.version ?? 0;
    if (all.length < 2)
        return [];
    const go = (label, name, to) => act(label, () => showVersion(turn, to), { "aria-label": name, disabled: !last || !all[to] });
    return [go("‹", "Version before", at - 1), element("span", { class: "note versions" }, `${at + 1} of ${all.length}`), go("›", "Version after", at + 1)];
}

function turnActions(turn, last) {
    const parts = versionActions(turn, last);
    if (last && !turn.results)
        parts.push(act("Regenerate", regenerate), act("Edit the question", editQuestion));
    else if (last)
        parts.push(act("Regenerate", regenerate));
    return parts.length ? element("div", { class: "actions" }, ...parts) : null;
}

// Boxes for what the called tools have returned.
function resultForm(turn) {
    const calls = turn.answers.length === 1 ? turn.answers[0].calls ?? [] : [];
    if (!calls.length)
        return null;
    const boxes = calls.map((c) => element("label", {}, `Result of ${c.name}`, element("textarea", { rows: "2" })));
    const form = element("form", { class: "results" }, ...boxes, element("button", { class: "small", type: "submit" }, "Send the results"));
    form.addEventListener("submit", (e) => {
        e.preventDefault();
        const results = calls.map((c, i) => ({ id: c.id, name: c.name, content: boxes[i].lastChild.value }));
        askWith({ question: results.map((r) => `Result of ${r.name}: ${r.content}`).join("\n"), results, answers: [] });
    });
    return form;
}

function drawTalk() {
    const { turns } = state.talk;
    state.views = [];
    hideToken();
    byId("talk").replaceChildren(...turns.flatMap((turn, i) => {
        const views = turn.answers.map(answerView);
        state.views.push(...views);
        const last = i === turns.length - 1 && !state.abort;
        const edited = state.editing === turn ? " edited" : "";
        return [element("section", { class: `question${edited}`, "aria-label": turn.results ? "Results of tools" : "Question" }, turn.question),
            element("div", { class: `${turn.answers.length > 1 ? "answers two" : "answers"}${edited}` }, ...views.map((v) => v.root)),
            last ? resultForm(turn) : null, turnActions(turn, last)].filter(Boolean);
    }));
    if (!turns.length)
        byId("talk").append(element("p", { class: "empty" }, "Ask a question to begin."));
    toEnd();
}

function drawList() {
    const item = (c) => element("li", { class: c === state.talk ? "current" : "" },
        element("button", { type: "button", "aria-current": c === state.talk ? "true" : null, onclick: () => choose(c) }, c.title),
        element("button", { class: "icon", type: "button", "aria-label": `Delete ${c.title}`, title: "Delete", onclick: () => remove(c) }, "×"));
    byId("conversations").replaceChildren(...state.conversations.map(item));
}

function drawMode() {
    const { compare } = state.talk;
    byId("toggle-compare").setAttribute("aria-pressed", String(compare));
    byId("second-model").hidden = !compare;
    byId("toggle-colours").setAttribute("aria-pressed", String(view.on));
    byId("send").hidden = !!state.abort;
    byId("stop").hidden = !state.abort;
    byId("editing").hidden = !state.editing;
    document.body.classList.toggle("coloured", view.on);
}

function drawAll() {
    drawList();
    drawMode();
    drawTalk();
}

const repaint = () => state.views.forEach((v) => v.update());
const tokensShown = () => state.talk.turns.flatMap((t) => t.answers).flatMap(shownTokens);

// ---- conversations ----

function choose(c) {
    stop();
    state.editing = null;
    state.talk = c;
    toggle("toggle-list", "list", false);
    drawAll();
    byId("question").focus();
}

function remove(c) {
    state.conversations = state.conversations.filter((o) => o !== c);
    save();
    if (c === state.talk)
        choose(newConversation());
    else
        drawList();
}

// ---- asking ----

function options() {
    const set = {};
    for (const name of NUMBERS)
        if (state.settings[name] !== undefined && state.settings[name] !== "")
            set[name] = Number(state.settings[name]);
    if (state.settings.stop)
        set.stop = state.settings.stop;
    if (state.settings.tools?.trim())
        set.tools = readJson("tools", Array.isArray, "a list of tools");
    if (state.settings.format === "json")
        set.response_format = { type: "json_object" };
    if (state.settings.format === "schema")
        set.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema: readJson("schema", (v) => v && typeof v === "object", "a JSON Schema") } };
    return set;
}

// A setting that is written as JSON; throws a sentence.
function readJson(name, fits, what) {
    let value;
    try {
        value = JSON.parse(state.settings[name] ?? "");
    } catch {
        value = undefined;
    }
    if (!fits(value))
        throw new Error(`The settings have no ${what} as JSON.`);
    return value;
}

// What the model of one side has said so far, before a turn.
function messages(side, turns) {
    const said = state.settings.system ? [{ role: "system", content: state.settings.system }] : [];
    for (const turn of turns) {
        if (turn.results)
            said.push(...turn.results.map((r) => ({ role: "tool", tool_call_id: r.id, name: r.name, content: r.content })));
        else
            said.push({ role: "user", content: turn.question });
        const answer = turn.answers[side] ?? turn.answers[0];
        if (answer?.calls?.length)
            said.push({ role: "assistant", content: answer.text || null, tool_calls: answer.calls.map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments } })) });
        else if (answer?.text)
            said.push({ role: "assistant", content: answer.text });
    }
    return said;
}

// What the turn shows becomes the newest of its versions.
function keepVersion(turn) {
    turn.versions ??= [];
    turn.version = turn.versions.push({ question: turn.question, answers: turn.answers }) - 1;
}

// Of a turn that was answered before turns had versions.
function keepOld(turn) {
    if (!turn.versions && turn.answers.length)
        keepVersion(turn);
}

function showVersion(turn, to) {
    turn.version = to;
    Object.assign(turn, turn.versions[to]);
    save();
    drawAll();
}

async function generate(turn, set) {
    const before = state.talk.turns.slice(0, -1), { talk } = state;
    const sides = talk.compare ? [0, 1] : [0];
    keepOld(turn);
    turn.answers = sides.map((i) => ({ model: byId(`model-${i}`).value, text: "", json: !!set.response_format }));
    keepVersion(turn);
    state.abort = new AbortController();
    drawAll();
    say("The answer is being written.");
    const first = state.views.length - sides.length;
    await Promise.all(turn.answers.map((answer, side) => {
        const body = { model: answer.model, messages: messages(side, [...before, { question: turn.question, results: turn.results, answers: [] }]),
            logprobs: true, top_logprobs: TOP, timings_per_token: true, return_routed_experts: view.experts > 0, ...set };
        return runAnswer(answer, body, state.abort.signal, () => {
            const follow = nearEnd();
            state.views[first + side]?.update();
            if (follow)
                requestAnimationFrame(toEnd);
        });
    }));
    finish(talk, turn);
}

function finish(talk, turn) {
    state.abort = null;
    save();
    if (talk === state.talk)
        drawAll();
    if (turn.answers.some((a) => a.status === 401))
        askForKey();
    else
        say(turn.answers.some((a) => a.error) ? "The answer failed." : turn.answers.some((a) => a.finish === "stopped") ? "The answer was stopped." : "The answer is complete.");
    byId("question").focus();
}

// The options, or null where the settings cannot be read.
function optionsOrSay() {
    try {
        return options();
    } catch (e) {
        say(e.message);
        return null;
    }
}

// False: nothing was asked.
function askWith(turn) {
    const { talk } = state, set = state.abort ? null : optionsOrSay();
    if (!set)
        return false;
    if (!talk.turns.length) {
        talk.title = turn.question.slice(0, 60);
        state.conversations.unshift(talk);
    }
    if (state.editing) {
        keepOld(state.editing);
        state.editing.question = turn.question;
    } else {
        talk.turns.push(turn);
    }
    generate(state.editing ?? turn, set);
    return true;
}

function regenerate() {
    const set = state.abort ? null : optionsOrSay();
    if (set)
        generate(state.talk.turns.at(-1), set);
}

// The old question and its answer stay until the new one is sent, and then as another version.
function editQuestion() {
    state.editing = state.talk.turns.at(-1);
    byId("question").value = state.editing.question;
    grow();
    drawAll();
    byId("question").focus();
}

function leaveEditing() {
    if (!state.editing)
        return;
    state.editing = null;
    byId("question").value = "";
    grow();
    drawAll();
}

function stop() {
    state.abort?.abort();
}

// ---- controls ----

function grow() {
    const q = byId("question");
    q.style.height = "auto";
    q.style.height = `${Math.min(q.scrollHeight + 2, 220)}px`;
}

function submit(e) {
    e.preventDefault();
    const q = byId("question");
    if (state.abort || !q.value.trim() || !state.models.length)
        return;
    const asked = askWith({ question: q.value.trim(), answers: [] });
    if (!asked)
        return;
    state.editing = null;
    q.value = "";
    grow();
    drawAll();
}

function toggle(button, panel, to) {
    const open = byId(panel).classList.toggle("open", to);
    byId(button).setAttribute("aria-expanded", String(open));
    if (open && NARROW.matches && panel === "list")
        toggle("toggle-panel", "panel", false);
    redrawHeatmap();
}

function chooseTab(name) {
    for (const tab of document.querySelectorAll("[role=tab]")) {
        const own = tab.id === `tab-${name}`;
        tab.setAttribute("aria-selected", String(own));
        tab.tabIndex = own ? 0 : -1;
        byId(tab.getAttribute("aria-controls")).hidden = !own;
    }
    redrawHeatmap();
}

function openTabs() {
    const tabs = [...document.querySelectorAll("[role=tab]")];
    tabs.forEach((tab, i) => {
        tab.addEventListener("click", () => chooseTab(tab.id.slice(4)));
        tab.addEventListener("keydown", (e) => {
            if (e.key !== "ArrowLeft" && e.key !== "ArrowRight")
                return;
            chooseTab(tabs[1 - i].id.slice(4));
            tabs[1 - i].focus();
        });
    });
    if (NARROW.matches)
        toggle("toggle-panel", "panel", false);
}

function applyTheme() {
    document.documentElement.dataset.theme = state.settings.theme ?? "";
    redrawHeatmap();
}

function openSettings() {
    const form = byId("settings");
    for (const input of form.elements)
        if (input.name && state.settings[input.name] !== undefined)
            input.value = state.settings[input.name];
    form.addEventListener("submit", (e) => e.preventDefault());
    form.addEventListener("input", () => {
        for (const input of form.elements)
            if (input.name)
                state.settings[input.name] = input.value;
        saveSettings(state.settings);
        applyTheme();
    });
    byId("key").addEventListener("change", (e) => {
        setKey(e.target.value);
        connect();
    });
    applyTheme();
}

function askForKey() {
    toggle("toggle-panel", "panel", true);
    chooseTab("options");
    byId("key").focus();
    say("This server needs an API key: it belongs into the settings.");
}

function openControls() {
    byId("ask").addEventListener("submit", submit);
    byId("stop").addEventListener("click", stop);
    byId("leave-editing").addEventListener("click", leaveEditing);
    byId("new").addEventListener("click", () => choose(newConversation()));
    byId("question").addEventListener("input", grow);
    byId("question").addEventListener("keydown", (e) => {
        if (e.key === "Enter" && !e.shiftKey && !e.isComposing)
            submit(e);
    });
    document.addEventListener("keydown", (e) => {
        if (e.key === "Escape") {
            stop();
            leaveEditing();
        }
    });
    addEventListener("resize", hideToken);
    byId("talk").addEventListener("scroll", hideToken);
    byId("toggle-list").addEventListener("click", () => toggle("toggle-list", "list"));
    byId("toggle-panel").addEventListener("click", () => toggle("toggle-panel", "panel"));
    byId("toggle-compare").addEventListener("click", () => {
        state.talk.compare = !state.talk.compare;
        drawMode();
        if (state.talk.compare && state.models.length === 1)
            say("This server has one model: both sides ask it.");
    });
    byId("toggle-colours").addEventListener("click", () => {
        view.on = !view.on;
        drawMode();
        repaint();
    });
}

// ---- beginning ----

async function connect() {
    try {
        state.models = (await getJson("/v1/models")).data.map((m) => m.id);
        const load = await getJson("/v1/experts");
        for (const i of [0, 1]) {
            const select = byId(`model-${i}`);
            select.replaceChildren(...state.models.map((m) => element("option", {}, m)));
            select.value = state.models[Math.min(i, state.models.length - 1)];
        }
        document.title = `${state.models[0]} · pesc`;
        say("");
        if (view.experts || !byId("dense").hidden)
            return; // the panel is open already
        openPanel(load, tokensShown, repaint);
        if (load.experts)
            openHeatmap(() => getJson("/v1/experts"));
        else
            chooseTab("options");
    } catch (e) {
        if (e.status === 401)
            askForKey();
        else
            say(e.message);
    }
}

openSettings();
openControls();
openTabs();
drawAll();
connect();
