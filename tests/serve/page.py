#!/usr/bin/env python3
"""page.py MODEL [FOLDER]: the server's page in a headless Chromium. MODEL is the tiny model of tests/cli/helper.bash; with FOLDER the
pictures are kept there."""
import json
import pathlib
import sys
import tempfile

from browser import Browser
from hostile_texts import TEXTS
from reports import sparse_model
from running import Server

IDLE = "!document.querySelector('#send').hidden"
NAMED = {"button", "textbox", "combobox", "slider", "radio", "tab", "spinbutton", "searchbox", "link", "checkbox", "listbox"}
# Elements that a text may become, and the attributes they may have.
ALLOWED = {"P", "PRE", "CODE", "DIV", "SPAN", "BUTTON", "STRONG", "EM", "DEL", "A", "UL", "OL", "LI", "BLOCKQUOTE", "TABLE", "THEAD", "TBODY", "TR", "TH", "TD",
           "HR", "H3", "H4", "H5", "H6"}
ATTRIBUTES = {"class", "type", "href", "target", "rel", "title", "tabindex", "scope", "start"}


def ask(b, question):
    b.run("document.querySelector('#question').focus()")
    b.type(question)
    b.key("Enter", "\r")


def set_field(b, name, value):
    b.run(f"(() => {{ const f = document.querySelector('[name={name}]'); f.value = {json.dumps(value)};"
          " f.dispatchEvent(new Event('input', { bubbles: true })); })()")


def count(b, selector):
    return b.run(f"document.querySelectorAll({json.dumps(selector)}).length")


def text(b, selector):
    return b.run(f"document.querySelector({json.dumps(selector)}).textContent")


def answers_a_question(b, s):
    set_field(b, "max_tokens", "24")
    set_field(b, "seed", "5")
    ask(b, "hello <b>world</b>")
    b.wait(f"{IDLE} && document.querySelectorAll('.answer').length === 1")
    kept = b.run("JSON.parse(localStorage.getItem('pesc.conversations'))[0]")
    assert kept["turns"][0]["question"] == "hello <b>world</b>" == text(b, ".question") and "tokens" not in kept["turns"][0]["answers"][0]
    same = s.json("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello <b>world</b>"}], "max_tokens": 24, "seed": 5})
    assert kept["turns"][0]["answers"][0]["text"] == same["choices"][0]["message"]["content"]
    assert f'{same["usage"]["completion_tokens"]} tokens' in text(b, ".answer footer"), text(b, ".answer footer")


def colours_tokens(b, _):
    """Colours are those of the chosen layer and choice; a token shows its gates and what else was likely; arrow keys move."""
    b.click("#toggle-colours")
    b.wait("document.querySelectorAll('.tok.routed').length > 3")
    colours = "[...document.querySelectorAll('.tok.routed')].map((t) => t.style.getPropertyValue('--expert')).join()"
    seen = {}
    for layer in (0, 1):
        for rank in (0, 1):
            b.run(f"(() => {{ const l = document.querySelector('#layer'); l.value = {layer}; l.dispatchEvent(new Event('input')); }})()")
            b.click(f"#ranks input[value='{rank}']")
            b.run("new Promise((f) => requestAnimationFrame(() => requestAnimationFrame(f)))")
            seen[layer, rank] = b.run(colours)
    assert len(set(seen.values())) == 4, seen
    routed = count(b, ".tok.routed")
    shares = b.run("[...document.querySelectorAll('#legend button')].map((e) => Number(e.title.split(' ')[0]))")
    assert sum(shares) == routed and len(shares) == 4, (shares, routed)
    b.hover(".tok.routed")
    b.wait("!document.querySelector('#token').hidden")
    lines = b.run("[...document.querySelectorAll('#token .line .value')].map((e) => parseFloat(e.textContent))")
    assert len(lines) == 2 + 5 and 99 <= lines[0] + lines[1] <= 101 and sum(lines[2:]) <= 101, lines
    assert "Layer 1: gates" in text(b, "#token") and count(b, "#token .strip span") == 2
    b.run("document.querySelector('.tok').focus()")
    b.key("ArrowRight")
    assert b.run("document.activeElement === document.querySelectorAll('.tok')[1]") and b.run("document.querySelectorAll('.tok[tabindex=\"0\"]').length") == 1
    b.click("#legend button")
    b.run("new Promise((f) => requestAnimationFrame(() => requestAnimationFrame(f)))")
    assert count(b, ".tok.routed:not(.faded)") == shares[0] and b.run("document.querySelector('#legend button').ariaPressed") == "true"
    b.click("#legend button")


def shows_the_load(b, s):
    b.click("input[name=span][value=all]")
    b.click("#experts summary")
    b.wait("document.querySelectorAll('#heat-table tbody tr').length === 2")
    load = s.json("/v1/experts")
    busiest = [row.index(max(row)) for row in load["counts"]]
    b.wait(f"[...document.querySelectorAll('#heat-table tbody tr td:nth-child(2)')].map((e) => e.textContent).join() === '{','.join(f'expert {e}' for e in busiest)}'")
    pixels = b.run("(() => { const c = document.querySelector('#heat'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
                   " return new Set(new Uint32Array(d.buffer)).size; })()")
    assert pixels > 4, pixels
    b.run("document.querySelector('#heat').focus()")
    b.key("ArrowDown")
    b.key("ArrowRight")
    assert text(b, "#heat-text").startswith("Layer 0, expert 1: "), text(b, "#heat-text")
    b.run("document.querySelector('#heat').blur()")


def stops_and_regenerates(b, _):
    b.click("#new")
    set_field(b, "max_tokens", "")
    set_field(b, "seed", "")
    # an answer without an end, which ends only when the page ends it
    b.run('''window.realFetch = window.fetch;
        window.fetch = (path, o) => !path.startsWith('/v1/chat') ? window.realFetch(path, o) : Promise.resolve(new Response(new ReadableStream({ start(c) {
            c.enqueue(new TextEncoder().encode('data: {"choices":[{"delta":{"content":"forever"},"logprobs":{"content":[{"token":"forever","logprob":0,"bytes":[102,111,114,101,118,101,114],"top_logprobs":[]}]}}]}\\n\\n'));
            o.signal.addEventListener('abort', () => c.error(o.signal.reason)); } })))''')
    ask(b, "a")
    b.wait("!document.querySelector('#stop').hidden && document.querySelectorAll('.tok').length === 1")
    b.key("Escape")
    b.wait(IDLE)
    assert "stopped" in text(b, ".answer footer") and text(b, "#status") == "The answer was stopped." and text(b, ".answer .tokens") == "forever"
    b.run("window.fetch = window.realFetch")
    set_field(b, "max_tokens", "6")
    before = text(b, ".answer .tokens")
    b.run("[...document.querySelectorAll('.actions button')].find((e) => e.textContent === 'Regenerate').click()")
    b.wait(f"{IDLE} && document.querySelectorAll('.actions').length === 1")
    assert count(b, ".question") == count(b, ".answer") == 1 and text(b, ".answer .tokens") != before
    b.run("[...document.querySelectorAll('.actions button')].find((e) => e.textContent === 'Edit the question').click()")
    # the old question and answer stay until the new one is sent
    assert b.run("document.querySelector('#question').value") == "a" and count(b, ".question.edited") == 1 and not b.run("document.querySelector('#editing').hidden")
    b.run("document.querySelector('#question').focus()")
    b.key("Escape")
    assert b.run("document.querySelector('#question').value") == "" and count(b, ".edited") == 0
    b.run("[...document.querySelectorAll('.actions button')].find((e) => e.textContent === 'Edit the question').click()")
    b.run("document.querySelector('#question').value = 'another'")
    b.run("document.querySelector('#ask').requestSubmit()")
    b.wait(f"{IDLE} && document.querySelectorAll('.actions').length === 1")
    assert text(b, ".question") == "another" and text(b, ".versions") == "3 of 3", text(b, ".versions")
    for shown, question in (("2 of 3", "a"), ("1 of 3", "a")):
        b.click("[aria-label='Version before']")
        assert text(b, ".versions") == shown and text(b, ".question") == question
    assert "forever" in text(b, ".answer") and b.run("document.querySelector(\"[aria-label='Version before']\").disabled")
    kept = b.run("JSON.parse(localStorage.getItem('pesc.conversations'))[0].turns[0]")
    assert len(kept["versions"]) == 3 and kept["version"] == 0 and kept["question"] == "a", kept


def asks_two_models(b, _):
    b.click("#new")
    b.click("#toggle-compare")
    ask(b, "both")
    b.wait(f"{IDLE} && document.querySelectorAll('.answers.two .answer').length === 2")
    b.wait("document.querySelectorAll('.answers.two .tok').length > 3")
    assert b.run("document.querySelector('#model-1').offsetParent !== null")


def keeps_conversations(b, _):
    titles = "[...document.querySelectorAll('#conversations li button:first-child')].map((e) => e.textContent).join('|')"
    assert b.run(titles) == "both|a|hello <b>world</b>", b.run(titles)
    b.reload()
    b.wait("document.querySelector('#model-0').value")
    assert b.run(titles) == "both|a|hello <b>world</b>" and b.run("document.querySelector('[name=max_tokens]').value") == "6"
    b.click("#conversations li:last-child button:first-child")
    assert text(b, ".question") == "hello <b>world</b>" and count(b, ".answer") == 1
    b.click("#conversations li:last-child .icon")
    assert b.run(titles) == "both|a" and count(b, ".answer") == 0
    b.run("localStorage.setItem('pesc.conversations', '[{\"id\":1},{\"id\":\"a\",\"title\":\"b\",\"turns\":[{}]},7,null]')")
    b.reload()
    b.wait("document.querySelector('#model-0').value")
    assert count(b, "#conversations li") == 0


def stream(*deltas, finish="stop"):
    events = [{"choices": [{"delta": d, "finish_reason": None}]} for d in deltas] + [{"choices": [{"delta": {}, "finish_reason": finish}]}]
    return "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"


def answer_with(b, text):
    """The server's next answers; what was asked is in window.asked."""
    b.run(f"""window.asked = []; window.realFetch ??= window.fetch;
        window.fetch = (path, o) => path.startsWith('/v1/chat') ? (window.asked.push(JSON.parse(o.body)), Promise.resolve(new Response({json.dumps(text)}))) : window.realFetch(path, o)""")


def shows_reasoning_and_calls(b, _):
    b.click("#new")
    b.run("document.querySelector('#toggle-colours').ariaPressed === 'true' && document.querySelector('#toggle-colours').click()")
    set_field(b, "tools", '[{"type": "function", "function": {"name": "weather"}}]')
    set_field(b, "format", "json")
    answer_with(b, stream({"reasoning_content": "Think *hard*"}, {"reasoning_content": " now."},
                          {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"ci'}}]},
                          {"tool_calls": [{"index": 0, "function": {"arguments": 'ty":"<b>Rome"}'}}]},
                          {"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "clock", "arguments": "{broken"}}]},
                          {"tool_calls": [{"index": 9, "id": "c9", "function": {"name": "far", "arguments": ""}}]}, finish="tool_calls"))
    ask(b, "how is it?")
    b.wait(f"{IDLE} && document.querySelectorAll('.call').length === 2")
    assert text(b, ".reasoning .content") == "Think hard now." and not b.run("document.querySelector('.reasoning').open")
    assert [b.run(f"document.querySelectorAll('.call pre')[{i}].textContent") for i in (0, 1)] == ['{\n  "city": "<b>Rome"\n}', "{broken"]
    assert b.run("document.querySelector('.call').open") and "calls a tool" in text(b, ".answer footer")
    asked = b.run("window.asked[0]")
    assert asked["tools"][0]["function"]["name"] == "weather" and asked["response_format"] == {"type": "json_object"}
    # results go back as messages of tools; an answer in JSON mode is indented
    answer_with(b, stream({"content": '{"a":[1,'}, {"content": "2]}"}))
    b.run("document.querySelectorAll('.results textarea')[0].value = 'sunny'")
    b.run("document.querySelector('.results').requestSubmit()")
    b.wait(f"{IDLE} && document.querySelectorAll('.answer').length === 2")
    said = b.run("window.asked[0].messages")
    assert [m["role"] for m in said] == ["user", "assistant", "tool", "tool"] and said[2] == {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "sunny"}, said
    assert said[1]["tool_calls"][0]["function"]["arguments"] == '{"city":"<b>Rome"}' and said[1]["content"] is None
    assert b.run("document.querySelectorAll('.answer')[1].querySelector('pre').textContent") == '{\n  "a": [\n    1,\n    2\n  ]\n}'
    b.reload()
    b.wait("document.querySelector('#model-0').value")
    b.click("#conversations li button")
    assert count(b, ".call") == 2 and text(b, ".reasoning .content") == "Think hard now."
    # settings that are no JSON are said, and nothing is lost
    set_field(b, "tools", "[")
    ask(b, "again")
    assert "a list of tools" in text(b, "#status") and b.run("document.querySelector('#question').value") == "again" and count(b, ".answer") == 2
    for name in ("tools", "format"):
        set_field(b, name, "")
    b.run("document.querySelector('#question').value = ''")
    b.click("#conversations li.current .icon")


def shows_what_models_write(b, _):
    """Indentation outside of fences, tables, formulas; what is none stays text."""
    def made(t):
        return b.run(f"""import('/page/markdown.js').then(({{ markdown }}) => {{ const box = document.createElement('div'); box.className = 'content';
            box.append(...markdown({json.dumps(t)})); document.querySelector('#talk').replaceChildren(box);
            const p = box.querySelector('p'); return {{ text: box.textContent, html: box.innerHTML, space: p && getComputedStyle(p).whiteSpace }}; }})""")
    code = made("def f(x):\n    if x:\n\treturn 1")
    assert code["text"] == "def f(x):\n    if x:\n\treturn 1" and code["space"] == "pre-wrap", code
    assert made("1. one\n   goes on\n2. two")["html"] == "<ol><li>one\ngoes on</li><li>two</li></ol>"
    table = made("| a | b |\n|---|:-:|\n| 1 | $x^2$ |")
    assert "<table>" in table["html"] and "<msup>" in table["html"], table
    for t, tags in {"so $\\frac{a+1}{\\sqrt{b}}$ is": ("mfrac", "msqrt"), "\\(x_i^2\\)": ("msubsup",), "$$\\sum_{i=1}^{n} i = \\frac{n(n+1)}{2}$$": ("munderover", "mfrac"),
                    "\\[\n\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}\n\\]": ("mtable", "mtr"), "$\\left( \\alpha \\right] \\text{if } x \\geq 0$": ("mtext",),
                    "$\\lim_{x \\to 0} f'(x)$": ("munder", "msup")}.items():
        got = made(t)
        assert all(f"<{tag}" in got["html"] for tag in tags) and "<math" in got["html"], (t, got)
    for t in ("it costs $5 and $10", "a $ b $ c", "$\\frac{1}$", "$x", "\\(never", "$" * 999, "\\[" * 5000 + "x"):
        got = made(t)
        assert "<math" not in got["html"], (t[:40], got["html"][:200])
    assert made("$\\unknown{x} < \\href{javascript:alert(1)}{y}$")["html"].count("<a") == 0
    deep = "$" + "{" * 300 + "x" + "}" * 300 + "$"
    assert "<math" not in made(deep)["html"]


def texts_stay_texts(b, _):
    """Hostile texts as Markdown, and as an answer that streams: only known elements come out, nothing runs and nothing is fetched."""
    for t in TEXTS:
        found = b.run(f"""import('/page/markdown.js').then(({{ markdown }}) => {{
            const box = document.createElement('div');
            const began = performance.now();
            box.append(...markdown({json.dumps(t)}));
            const took = performance.now() - began;
            document.querySelector('#talk').replaceChildren(box);
            const all = [...box.querySelectorAll('*')];
            return {{ took, tags: [...new Set(all.map((e) => e.tagName))], attributes: [...new Set(all.flatMap((e) => e.getAttributeNames()))],
                links: all.filter((e) => e.href).map((e) => e.href), text: box.textContent }}; }})""")
        assert set(found["tags"]) <= ALLOWED and set(found["attributes"]) <= ATTRIBUTES and found["took"] < 1000, (t[:80], found)
        assert all(link.startswith(("https://", "http://")) for link in found["links"]), (t, found)
    b.run("window.realFetch = window.fetch")
    for t in TEXTS:
        entry = {"token": t, "logprob": -1, "bytes": list(t.encode()), "top_logprobs": [{"token": t, "logprob": -1}] * 5}
        routed = {"layers": [0, 1], "experts": [[[0, 1], [2, 3]]], "gates": [[[0.6, 0.4], [0.5, 0.5]]]}
        events = [{"choices": [{"delta": {"content": t}, "logprobs": {"content": [entry]}, "routed_experts": routed, "finish_reason": None}]}]
        stream = "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"
        b.run(f"window.fetch = (path, o) => path.startsWith('/v1/chat') ? Promise.resolve(new Response({json.dumps(stream)})) : window.realFetch(path, o)")
        b.click("#new")
        b.run(f"(() => {{ document.querySelector('#question').value = {json.dumps(t)}; document.querySelector('#ask').requestSubmit(); }})()")
        b.wait(f"{IDLE} && document.querySelectorAll('.answer').length === 1")
        if b.run("document.querySelectorAll('.tok').length && !document.querySelector('.tokens').hidden"):
            b.run("document.querySelector('.tok').focus()")
        assert count(b, "#talk script, #talk img, #talk iframe, #talk svg, #token img, #token script, nav img, nav script") == 0
    b.run("window.fetch = window.realFetch")
    assert b.run("window.broken") is None


def can_be_read_aloud(b, _):
    """Every control has a name; the colours of texts contrast with their background in both themes."""
    for node in b.call("Accessibility.getFullAXTree")["nodes"]:
        if node.get("role", {}).get("value") in NAMED and not node.get("ignored"):
            assert node.get("name", {}).get("value"), node
    for theme in ("light", "dark"):
        b.theme(theme)
        low = b.run("""(() => {
            const rgb = (s) => s.match(/[\\d.]+/g).slice(0, 4).map(Number);
            const channel = (x) => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
            const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
            const back = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
            return [...document.querySelectorAll('button, label, .note, h1, .question, select, h3, output')].filter((e) => e.offsetParent && e.textContent.trim()).map((e) => {
                const a = light(rgb(getComputedStyle(e).color)), c = light(back(e));
                return { ratio: (Math.max(a, c) + 0.05) / (Math.min(a, c) + 0.05), what: e.outerHTML.slice(0, 80) };
            }).filter((x) => x.ratio < 4.5); })()""")
        assert not low, (theme, low)
    b.theme("light")


def takes_pictures(b, folder):
    for name, theme, size in (("light", "light", (1280, 860)), ("dark", "dark", (1280, 860)), ("phone", "light", (390, 844))):
        b.theme(theme)
        b.resize(*size)
        assert b.run("document.documentElement.scrollWidth <= innerWidth"), f"{name}: wider than the window"
        b.screenshot(pathlib.Path(folder, f"page-{name}.png"))
    b.resize(1280, 860)


def asks_for_a_key(model):
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
        f.write("a-secret-key\n")
        f.flush()
        with Server(model, "--api-key-file", f.name) as s, Browser(f"http://127.0.0.1:{s.port}/") as b:
            b.wait("document.querySelector('#status').textContent.includes('API key')")
            assert b.run("document.activeElement.id") == "key"
            b.type("a-secret-key")
            b.key("Tab")
            b.wait("document.querySelector('#model-0').value")
            assert b.run("Object.values(localStorage).join().includes('a-secret-key')") is False


def main():
    model = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        name = "<img src=x onerror=window.broken=1>"
        with Server(sparse_model(model, folder + "/sparse"), "--served-name", name) as s, Browser(f"http://127.0.0.1:{s.port}/") as b:
            b.wait("document.querySelector('#model-0').value")
            assert b.run("document.querySelector('#model-0').value") == name and not b.run("document.querySelector('#sparse').hidden")
            for part in (answers_a_question, colours_tokens, shows_the_load, can_be_read_aloud, stops_and_regenerates, asks_two_models):
                part(b, s)
            takes_pictures(b, sys.argv[2] if len(sys.argv) > 2 else folder)
            for part in (keeps_conversations, shows_reasoning_and_calls, shows_what_models_write, texts_stay_texts):
                part(b, s)
            assert b.run("window.broken") is None and not b.complaints, b.complaints
        with Server(model) as s, Browser(f"http://127.0.0.1:{s.port}/") as b:
            b.wait("!document.querySelector('#options').hidden && document.querySelector('#model-0').value")
            assert b.run("document.querySelector('#toggle-colours').hidden")
            ask(b, "dense")
            b.wait(f"{IDLE} && document.querySelectorAll('.answer').length === 1")
            assert not b.complaints, b.complaints
    asks_for_a_key(model)
    print(f"the page works, and {len(TEXTS)} hostile texts stay texts")


if __name__ == "__main__":
    main()
