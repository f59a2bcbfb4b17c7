// TeX's formulas as MathML: what models write between dollars. A command that is not known is shown as its name, and a formula that is
// not well formed is left to the caller as text.

const SPACE = "http://www.w3.org/1998/Math/MathML";
const DEPTH = 20; // of nesting

const made = (tag, ...children) => {
    const e = document.createElementNS(SPACE, tag);
    e.append(...children);
    return e;
};

const row = (nodes) => (nodes.length === 1 ? nodes[0] : made("mrow", ...nodes));

const words = (text) => Object.fromEntries(text.trim().split(/\s+/).map((pair) => pair.split("=")));
const LETTERS = words(`alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι kappa=κ lambda=λ mu=μ nu=ν xi=ξ pi=π
    rho=ρ varrho=ϱ sigma=σ tau=τ upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ
    Omega=Ω infty=∞ partial=∂ nabla=∇ ell=ℓ hbar=ℏ Re=ℜ Im=ℑ aleph=ℵ emptyset=∅ varnothing=∅ angle=∠ triangle=△ square=□ prime=′ degree=° top=⊤ bot=⊥`);
const SIGNS = words(`times=× cdot=⋅ div=÷ pm=± mp=∓ ast=∗ star=⋆ circ=∘ bullet=∙ oplus=⊕ otimes=⊗ odot=⊙ leq=≤ le=≤ geq=≥ ge=≥ neq=≠ ne=≠ equiv=≡ approx=≈
    sim=∼ simeq=≃ cong=≅ propto=∝ ll=≪ gg=≫ subset=⊂ subseteq=⊆ supset=⊃ supseteq=⊇ in=∈ notin=∉ ni=∋ cup=∪ cap=∩ setminus=∖ land=∧ wedge=∧ lor=∨ vee=∨
    lnot=¬ neg=¬ forall=∀ exists=∃ to=→ rightarrow=→ leftarrow=← gets=← Rightarrow=⇒ implies=⇒ Leftarrow=⇐ iff=⇔ Leftrightarrow=⇔ leftrightarrow=↔ mapsto=↦
    uparrow=↑ downarrow=↓ longrightarrow=⟶ ldots=… dots=… cdots=⋯ vdots=⋮ ddots=⋱ mid=∣ parallel=∥ perp=⊥ langle=⟨ rangle=⟩ lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉
    vert=| lvert=| rvert=| Vert=‖ lVert=‖ rVert=‖ colon=: therefore=∴ because=∵ models=⊨ vdash=⊢ lbrace={ rbrace=}`);
const LARGE = words("sum=∑ prod=∏ coprod=∐ int=∫ iint=∬ oint=∮ bigcup=⋃ bigcap=⋂ bigoplus=⨁ bigotimes=⨂");
const NAMES = new Set("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh exp log ln lg det dim ker gcd deg arg hom Pr".split(" "));
const UNDER = new Set("lim max min sup inf limsup liminf argmax argmin".split(" ")); // with limits below
const ACCENTS = words("hat=^ widehat=^ bar=¯ overline=¯ vec=→ tilde=~ widetilde=~ dot=˙ ddot=¨");
const SPACES = { ",": 0.17, ":": 0.22, ";": 0.28, " ": 0.3, "!": 0, quad: 1, qquad: 2 };
const FENCES = { pmatrix: "()", bmatrix: "[]", Bmatrix: "{}", vmatrix: "||", Vmatrix: "‖‖", cases: "{" };
const DOUBLE = { R: "ℝ", N: "ℕ", Z: "ℤ", Q: "ℚ", C: "ℂ", P: "ℙ", H: "ℍ" };
const TOKEN = /\\(?:[a-zA-Z]+\*?|[^])|\s+|\d+(?:\.\d+)?|[^]/gu;

class Malformed extends Error {}

class Parser {
    constructor(text, display) {
        this.tokens = text.match(TOKEN) ?? [];
        this.at = 0;
        this.depth = 0;
        this.display = display;
    }

    skip() {
        while (this.at < this.tokens.length && !this.tokens[this.at].trim())
            this.at++;
    }

    peek() {
        this.skip();
        return this.tokens[this.at];
    }

    next() {
        this.skip();
        if (this.at === this.tokens.length)
            throw new Malformed();
        return this.tokens[this.at++];
    }

    expect(token) {
        if (this.next() !== token)
            throw new Malformed();
    }

    // Up to one of `ends`, which stays.
    list(...ends) {
        const out = [];
        if (++this.depth > DEPTH)
            throw new Malformed();
        while (this.peek() !== undefined && !ends.includes(this.peek()))
            out.push(this.scripted());
        this.depth--;
        return out;
    }

    group() {
        const t = this.next();
        if (t !== "{") {
            this.at--;
            return this.atom();
        }
        const inside = this.list("}");
        this.expect("}");
        return row(inside);
    }

    // The text of a group, as it stands.
    words() {
        this.expect("{");
        for (let text = "", open = 1; this.at < this.tokens.length; this.at++) {
            const t = this.tokens[this.at];
            open += (t === "{") - (t === "}");
            if (!open) {
                this.at++;
                return text;
            }
            text += t;
        }
        throw new Malformed();
    }

    scripted() {
        const base = ["^", "_"].includes(this.peek()) ? made("mrow") : this.atom();
        let sub = null, sup = null;
        for (let t = this.peek(); t === "^" || t === "_" || t === "'"; t = this.peek()) {
            this.at++;
            if (t === "'")
                sup = made("mrow", ...(sup ? [sup] : []), made("mo", "′"));
            else if (t === "_")
                sub = this.group();
            else
                sup = sup ? made("mrow", sup, this.group()) : this.group();
        }
        if (!sub && !sup)
            return base;
        const above = base.limits && (this.display || base.limits === "always");
        const tag = above ? (sub && sup ? "munderover" : sub ? "munder" : "mover") : sub && sup ? "msubsup" : sub ? "msub" : "msup";
        return made(tag, base, ...[sub, sup].filter(Boolean));
    }

    atom() {
        const t = this.next();
        if (t === "}" || t === "&" || t === "$")
            throw new Malformed();
        if (t === "{") {
            this.at--;
            return this.group();
        }
        if (/^\d/.test(t))
            return made("mn", t);
        if (/^\p{L}/u.test(t))
            return made("mi", t);
        if (t[0] === "\\" && t.length > 1)
            return this.command(t.slice(1));
        const e = made("mo", t === "-" ? "−" : t);
        if ("()[]|".includes(t)) // only those of \left and \right grow
            e.setAttribute("stretchy", "false");
        return e;
    }

    large(text, when) {
        const e = made("mo", text);
        e.limits = when;
        return e;
    }

    command(name) {
        if (LETTERS[name])
            return made("mi", LETTERS[name]);
        if (SIGNS[name])
            return made("mo", SIGNS[name]);
        if (LARGE[name])
            return this.large(LARGE[name], name.endsWith("int") ? null : "display");
        if (UNDER.has(name))
            return this.large(name.replace(/^arg(?=m)/, "arg "), "always");
        if (NAMES.has(name))
            return made("mi", name);
        if (name in SPACES) {
            const e = made("mspace");
            e.setAttribute("width", `${SPACES[name]}em`);
            return e;
        }
        if (ACCENTS[name]) {
            const accent = made("mo", ACCENTS[name]), e = made("mover", this.group(), accent);
            e.setAttribute("accent", "true");
            return e;
        }
        return this.structure(name);
    }

    structure(name) {
        switch (name) {
        case "frac": case "dfrac": case "tfrac":
            return made("mfrac", this.group(), this.group());
        case "binom": {
            const e = made("mfrac", this.group(), this.group());
            e.setAttribute("linethickness", "0");
            return made("mrow", made("mo", "("), e, made("mo", ")"));
        }
        case "sqrt": {
            if (this.peek() !== "[")
                return made("msqrt", this.group());
            this.at++;
            const index = row(this.list("]"));
            this.expect("]");
            return made("mroot", this.group(), index);
        }
        case "text": case "textbf": case "textit": case "mathrm": case "operatorname": case "operatorname*": case "mbox":
            return made("mtext", this.words().replace(/^\s+|\s+$/g, "\u00a0"));
        case "mathbb": {
            const text = this.words();
            return made("mi", DOUBLE[text] ?? text);
        }
        case "mathbf": case "boldsymbol": case "mathcal": case "mathit": case "mathsf": case "displaystyle": case "limits": case "nolimits":
            return this.peek() === "{" ? this.group() : made("mrow");
        case "underline":
            return made("munder", this.group(), made("mo", "_"));
        case "boxed":
            return this.boxed();
        case "left":
            return this.fenced();
        case "begin":
            return this.environment();
        case "middle": case "big": case "Big": case "bigg": case "Bigg": case "bigl": case "bigr":
            return made("mo", this.fence());
        case "end": case "right": case "\\":
            throw new Malformed();
        default:
            return made(/^[a-z]/i.test(name) ? "mtext" : "mo", name.length > 1 ? `\\${name}` : name);
        }
    }

    boxed() {
        const e = made("mrow", this.group());
        e.setAttribute("class", "boxed");
        return e;
    }

    fence() {
        const t = this.next(), name = t.slice(1);
        return t === "." ? "" : t[0] === "\\" && t.length > 1 ? SIGNS[name] ?? { "{": "{", "}": "}", "|": "‖" }[name] ?? "" : t;
    }

    fenced() {
        const open = this.fence(), inside = this.list("\\right");
        this.expect("\\right");
        return made("mrow", made("mo", open), ...inside, made("mo", this.fence()));
    }

    environment() {
        const name = this.words().replace("*", ""), lines = [[]];
        for (;;) {
            lines.at(-1).push(made("mtd", ...this.list("&", "\\\\", "\\end")));
            const t = this.next();
            if (t === "\\\\")
                lines.push([]);
            else if (t === "\\end")
                break;
        }
        if (this.words().replace("*", "") !== name)
            throw new Malformed();
        const table = made("mtable", ...lines.filter((l) => l.length > 1 || l[0]?.childNodes.length).map((cells) => made("mtr", ...cells)));
        const [open, close] = FENCES[name] ?? "";
        if (name === "cases" || name.startsWith("align") || name === "aligned")
            table.setAttribute("class", "left");
        return open ? made("mrow", made("mo", open), table, ...(close ? [made("mo", close)] : [])) : table;
    }
}

// The element of a formula; null where it is not one.
export function formula(text, display) {
    if (!text.trim())
        return null;
    try {
        const parser = new Parser(text, display), inside = parser.list();
        if (parser.at < parser.tokens.length)
            return null;
        const math = made("math", row(inside));
        math.setAttribute("display", display ? "block" : "inline");
        math.setAttribute("aria-label", text.trim());
        return math;
    } catch (e) {
        if (e instanceof Malformed)
            return null;
        throw e;
    }
}
