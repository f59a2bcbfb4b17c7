// Requests to the server that the page came from.

let key = ""; // in memory only

export function setKey(text) {
    key = text.trim();
}

export class ServerError extends Error {
    constructor(message, status, code) {
        super(message);
        this.status = status;
        this.code = code;
    }
}

async function fail(answer) {
    let error = {};
    try {
        error = (await answer.json()).error ?? {};
    } catch { /* not an answer of pesc */ }
    throw new ServerError(error.message ?? `The server answered ${answer.status}.`, answer.status, error.code);
}

async function request(path, options = {}) {
    const headers = { ...options.headers };
    if (key)
        headers.Authorization = `Bearer ${key}`;
    let answer;
    try {
        answer = await fetch(path, { ...options, headers });
    } catch (e) {
        if (e.name === "AbortError")
            throw e;
        throw new ServerError("The server cannot be reached.", 0, "unreachable");
    }
    return answer.ok ? answer : fail(answer);
}

export async function getJson(path) {
    return (await request(path)).json();
}

// The events of a chat, as objects, as they come. An error event throws.
export async function* streamChat(body, signal) {
    const answer = await request("/v1/chat/completions", {
        method: "POST", signal, headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
        const { done, value } = await reader.read();
        if (done)
            throw new ServerError("The connection ended before the answer.", 0, "cut");
        const blocks = (text + value).split("\n\n");
        text = blocks.pop();
        for (const block of blocks) {
            if (!block.startsWith("data: "))
                continue;
            if (block === "data: [DONE]")
                return;
            const event = JSON.parse(block.slice(6));
            if (event.error)
                throw new ServerError(event.error.message, 0, event.error.code);
            yield event;
        }
    }
}
