// The frame around the views: who is signed in, where to go, what was said, and what the keys do.
import { post, remove } from "./api.js";
import { html, render, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { begin, change, load, signedIn, signedOut, useLive } from "./live.js";
import { Empty, Loading, Problem } from "./parts.js";
import { go, link, useRoute } from "./route.js";
import { Audit } from "./views/audit.js";
import { Compare } from "./views/compare.js";
import { EndpointPage } from "./views/endpoint.js";
import { Endpoints } from "./views/endpoints.js";
import { JobPage } from "./views/job.js";
import { Jobs } from "./views/jobs.js";
import { Now } from "./views/now.js";
import { Usage } from "./views/usage.js";
import { WhatIf } from "./views/what_if.js";

const VIEWS = [
  { name: "now", title: "Now", key: "n", list: Now },
  { name: "jobs", title: "Jobs", key: "j", of: "tenant", list: Jobs, one: JobPage },
  { name: "endpoints", title: "Endpoints", key: "e", of: "tenant", list: Endpoints, one: EndpointPage },
  { name: "compare", title: "Compare", key: "c", of: "tenant", list: Compare },
  { name: "what-if", title: "What if", key: "w", list: WhatIf },
  { name: "audit", title: "Audit", key: "a", of: "operator", list: Audit },
  { name: "usage", title: "Usage", key: "u", list: Usage },
];
const NOT_YOURS = {
  tenant: html`<${Empty} title="Jobs and endpoints are their tenants’">
    <p><code>tiercel dashboard --tenant NAME</code> opens this page as one of them.</p></${Empty}>`,
  operator: html`<${Empty} title="The audit log is the operator’s">
    <p><code>tiercel dashboard --operator</code> shows it; <code>tiercel audit</code> lists it in a terminal.</p>
      </${Empty}>`,
};

/** Whether a view is for who is signed in: an operator has no jobs, a tenant no audit log. */
const isFor = (view, session) => !view.of || !session || view.of === (session.tenant ? "tenant" : "operator");

const useViews = () => {
  const session = useLive((state) => state.session);
  return VIEWS.filter((view) => isFor(view, session));
};

function App() {
  const phase = useLive((state) => state.phase);
  const route = useRoute();
  if (phase === "signed-out") return html`<${SignIn} />`;
  const view = VIEWS.find((each) => each.name === route.view);
  return html`
    <a class="skip" href="#content" onClick=${(event) => {
      event.preventDefault();
      document.getElementById("content").focus();
    }}>Skip to the content</a>
    <${Header} current=${view?.name} />
    <main id="content" tabindex="-1">
      ${phase === "loading" ? html`<${FirstLoad} />` : html`<${Page} view=${view} route=${route} />`}
    </main>
    <${Said} />
    <${Keys} />`;
}

function Page({ view, route }) {
  const session = useLive((state) => state.session);
  const title = view ? (route.id ? `${route.id} · ${view.title}` : view.title) : "Not found";
  const first = useRef(true);
  useLayoutEffect(() => {
    // at once: nothing that is pressed next may go elsewhere
    document.title = `${title} · Tiercel`;
    if (!first.current) document.getElementById("content").focus({ preventScroll: true });
    first.current = false;
    scrollTo(0, 0);
    document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [view?.name, route.id]);
  if (!view)
    return html`<h1>No such view</h1><p>There is nothing at this address. <a href=${link("now")}>See what runs now</a>
      .</p>`;
  if (!isFor(view, session)) return html`<h1>${view.title}</h1>${NOT_YOURS[view.of]}`;
  const Shown = route.id && view.one ? view.one : view.list;
  return html`<${Shown} key=${`${view.name}/${route.id}`} id=${route.id} query=${route.query} />`;
}

function FirstLoad() {
  const problem = useLive((state) => state.problem);
  return problem ? html`<${Problem} error=${problem} again=${begin} />` : html`<${Loading} what="the dashboard" />`;
}

const CONNECTION = {
  connecting: ["◔", "connecting"],
  live: ["●", "live"],
  lost: ["◌", "disconnected"],
};

function Header({ current }) {
  const views = useViews();
  const policy = useLive((state) => state.policy?.name ?? state.session?.policy);
  const session = useLive((state) => state.session);
  const connection = useLive((state) => state.connection);
  const [sign, word] = CONNECTION[connection];
  const leave = async () => {
    await remove("session").catch(() => {});
    signedOut();
  };
  return html`<header class="top">
    <a class="brand" href=${link("now")} aria-label="Tiercel, what runs now">
      <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true"><path d="M4 25h6v-7h6v-6h6V6h6" fill="none"
        stroke="currentColor" stroke-width="4" stroke-linecap="round" stroke-linejoin="round" /></svg>
      <span>tiercel</span>
    </a>
    <nav aria-label="Views"><ul>
      ${views.map(
        (view) => html`<li key=${view.name}><a href=${link(view.name)}
        aria-current=${view.name === current ? "page" : undefined}>${view.title}</a></li>`,
      )}
    </ul></nav>
    <div class="who">
      <span class=${`connection connection-${connection}`} role="status"><span aria-hidden="true">${sign}</span> ${word}
        </span>
      ${policy && html`<span class="policy" title="The policy that decides who gets what">policy ${policy}</span>`}
      ${
        session &&
        html`<span class="tenant">${session.tenant || session.role}${
          session.tenant && html`<span class="role"> · ${session.role}</span>`
        }</span>
        <button type="button" class="quiet" onClick=${leave}>Sign out</button>`
      }
    </div>
  </header>
  ${
    connection === "lost" &&
    html`<p class="lost" role="alert">The broker does not answer. Training and serving go on without it;
    what is shown here is from before, and follows again by itself.</p>`
  }
  <${LoadProblem} />`;
}

function LoadProblem() {
  const problem = useLive((state) => (state.phase === "signed-in" && state.connection !== "lost" ? state.problem : ""));
  return problem ? html`<${Problem} error=${problem} again=${load} />` : null;
}

const Said = () => {
  const said = useLive((state) => state.said);
  return html`<div class=${said ? "said" : "said nothing"} role="status" aria-live="polite">${said}</div>`;
};

function SignIn() {
  const [token, setToken] = useState("");
  const [error, setError] = useState(useLive((state) => state.signInProblem) ?? null);
  const enter = async (event) => {
    event.preventDefault();
    try {
      signedIn(await post("session", { token: token.trim() }));
    } catch (problem) {
      setError(problem.message);
    }
  };
  return html`<main class="sign-in" id="content"><form onSubmit=${enter}>
    <svg viewBox="0 0 32 32" width="36" height="36" aria-hidden="true"><path d="M4 25h6v-7h6v-6h6V6h6" fill="none"
      stroke="currentColor" stroke-width="4" stroke-linecap="round" stroke-linejoin="round" /></svg>
    <h1>Sign in to Tiercel</h1>
    <p>On the broker’s machine, <code>tiercel dashboard</code> opens this page signed in. Elsewhere, paste a token.</p>
    <label>Token<input type="password" autocomplete="off" spellcheck="false" required autofocus value=${token}
      onInput=${(event) => setToken(event.target.value)} /></label>
    ${error && html`<p class="refused" role="alert">${error}</p>`}
    <button type="submit" class="filled">Sign in</button>
  </form></main>`;
}

/** Shortcuts: a letter goes to a view, "/" searches, "?" lists them. */
function Keys() {
  const views = useViews();
  const latest = useRef(views);
  latest.current = views;
  const dialog = useRef(null);
  useEffect(() => {
    const press = (event) => {
      const busy = event.target.closest?.("input, textarea, select, [contenteditable], dialog[open]");
      if (busy || event.ctrlKey || event.metaKey || event.altKey) return;
      const view = latest.current.find((each) => each.key === event.key);
      if (view) go(link(view.name));
      else if (event.key === "?") dialog.current.showModal();
      else if (event.key === "/" && document.querySelector("input[type=search]")) {
        event.preventDefault();
        document.querySelector("input[type=search]").focus();
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return html`<footer><button type="button" class="quiet" onClick=${() => dialog.current.showModal()}>
    Keyboard shortcuts <kbd>?</kbd></button></footer>
    <dialog ref=${dialog} aria-label="Keyboard shortcuts"><h2>Keyboard shortcuts</h2>
      <dl class="keys">
        ${views.map((view) => html`<div key=${view.key}><dt><kbd>${view.key}</kbd></dt><dd>${view.title}</dd></div>`)}
        <div><dt><kbd>/</kbd></dt><dd>Search, where there is a list</dd></div>
        <div><dt><kbd>?</kbd></dt><dd>These shortcuts</dd></div>
        <div><dt><kbd>Esc</kbd></dt><dd>Close a dialog</dd></div>
      </dl>
      <div class="dialog-buttons"><button type="button" class="filled" onClick=${() => dialog.current.close()}>
        Close</button></div>
    </dialog>`;
}

const LINK = /^#\/sign-in\/(.+)$/;

/** A one-time link has its code in the fragment, which no server is told; it is good once, and goes from the address. */
async function enterByLink() {
  const code = location.hash.match(LINK)?.[1];
  if (!code) return begin();
  go(link("now"), { replace: true });
  try {
    return signedIn(await post("session", { code: decodeURIComponent(code) }));
  } catch (error) {
    change({ signInProblem: error.message });
    return begin(); // the browser may be signed in already
  }
}

addEventListener("hashchange", () => LINK.test(location.hash) && enterByLink());
render(html`<${App} />`, document.getElementById("app"));
enterByLink();
