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

const state = { conversations: loadConversations(), talk: newConversation(), settings: loadSettings(), models: [], views: [], abort: null };

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

function lastTurnActions() {
    const act = (label, f) => element("button", { class: "small", type: "button", onclick: f }, label);
    return element("div", { class: "actions" }, act("Regenerate", regenerate), act("Edit the question", editQuestion));
}

function drawTalk() {
    const { turns } = state.talk;
    state.views = [];
    hideToken();
    byId("talk").replaceChildren(...turns.flatMap((turn, i) => {
        const views = turn.answers.map(answerView);
        state.views.push(...views);
        const last = i === turns.length - 1 && !state.abort;
        return [element("section", { class: "question", "aria-label": "Question" }, turn.question),
            element("div", { class: turn.answers.length > 1 ? "answers two" : "answers" }, ...views.map((v) => v.root)),
            last ? lastTurnActions() : null].filter(Boolean);
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
    return set;
}

// What the model of one side has said so far, before a turn.
function messages(side, turns) {
    const said = state.settings.system ? [{ role: "system", content: state.settings.system }] : [];
    for (const turn of turns) {
        said.push({ role: "user", content: turn.question });
        const answer = turn.answers[side] ?? turn.answers[0];
        if (answer?.text)
            said.push({ role: "assistant", content: answer.text });
    }
    return said;
}

async function generate(turn) {
    const before = state.talk.turns.slice(0, -1), { talk } = state;
    const sides = talk.compare ? [0, 1] : [0];
    turn.answers = sides.map((i) => ({ model: byId(`model-${i}`).value, text: "" }));
    state.abort = new AbortController();
    drawAll();
    say("The answer is being written.");
    const first = state.views.length - sides.length;
    await Promise.all(turn.answers.map((answer, side) => {
        const body = { model: answer.model, messages: messages(side, [...before, { question: turn.question, answers: [] }]),
            logprobs: true, top_logprobs: TOP, timings_per_token: true, return_routed_experts: view.experts > 0, ...options() };
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
        say(turn.answers.some((a) => a.error) ? "The answer failed." : "The answer is complete.");
    byId("question").focus();
}

function ask(question) {
    const { talk } = state;
    if (!talk.turns.length) {
        talk.title = question.slice(0, 60);
        state.conversations.unshift(talk);
    }
    const turn = { question, answers: [] };
    talk.turns.push(turn);
    generate(turn);
}

function regenerate() {
    if (!state.abort)
        generate(state.talk.turns.at(-1));
}

function editQuestion() {
    const turn = state.talk.turns.pop();
    if (!state.talk.turns.length)
        state.conversations = state.conversations.filter((c) => c !== state.talk);
    byId("question").value = turn.question;
    grow();
    save();
    drawAll();
    byId("question").focus();
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
    ask(q.value.trim());
    q.value = "";
    grow();
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
    byId("new").addEventListener("click", () => choose(newConversation()));
    byId("question").addEventListener("input", grow);
    byId("question").addEventListener("keydown", (e) => {
        if (e.key === "Enter" && !e.shiftKey && !e.isComposing)
            submit(e);
    });
    document.addEventListener("keydown", (e) => {
        if (e.key === "Escape")
            stop();
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
