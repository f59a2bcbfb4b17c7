// Elements made from data. Text only ever becomes a text node, so nothing that a model or a server
// says can become markup.

// element("p", { class: "note", hidden: true, onclick: f }, "text", child, ...)
export function element(tag, attributes = {}, ...children) {
    const e = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (name.startsWith("on"))
            e.addEventListener(name.slice(2), value);
        else if (typeof value === "boolean")
            e.toggleAttribute(name, value);
        else if (value !== null && value !== undefined)
            e.setAttribute(name, value);
    }
    e.append(...children.filter((c) => c !== null && c !== undefined));
    return e;
}

export const byId = (id) => document.getElementById(id);

// A button that says for a moment that it has worked.
export function copyButton(label, text) {
    const button = element("button", { class: "small", type: "button" }, label);
    button.addEventListener("click", async () => {
        try {
            await navigator.clipboard.writeText(text());
            button.textContent = "Copied";
        } catch {
            button.textContent = "Not allowed";
        }
        setTimeout(() => { button.textContent = label; }, 1200);
    });
    return button;
}

// Runs f before the next frame, once, however often it is called until then.
export function perFrame(f) {
    let waits = false;
    return () => {
        if (waits)
            return;
        waits = true;
        requestAnimationFrame(() => { waits = false; f(); });
    };
}

export const percent = (x) => (x >= 0.0995 ? `${Math.round(100 * x)} %` : `${(100 * x).toFixed(1)} %`);
