// The frame around every page: the bar at the top, whether it is live, sign-in, dialogs and toasts.
import { signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { mustSignIn, send, useResource, type Listed } from "./api";
import { many, store, stored } from "./format";
import { KeyHelp } from "./keys";
import { connection, useLive } from "./live";
import { Confirm, Toasts } from "./parts/controls";
import { Glyph } from "./parts/marks";
import { here } from "./router";
import type { RunRow, Session } from "./types";

export const session = signal<Session | null>(null);
export const mayWrite = (): boolean => session.value?.read_only !== true;

const PLACES: [string, string, RegExp][] = [
  ["/runs", "Runs", /^\/($|runs|trials|pair|compare|new)/],
  ["/tasks", "Tasks", /^\/(tasks|certificates)/],
  ["/history", "History", /^\/(history|leaderboard|experiments|timings)/],
  ["/costs", "Costs", /^\/costs/],
  ["/queue", "Queue", /^\/(queue|schedules)/],
  ["/settings", "Settings", /^\/(settings|health)/],
];

export function setTheme(theme: string): void {
  store("theme", theme);
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function turnTheme(): void {
  const dark = (stored("theme") || (matchMedia("(prefers-color-scheme:dark)").matches ? "dark" : "light")) === "dark";
  setTheme(dark ? "light" : "dark");
}

function Live() {
  const { live, since, again } = connection.value;
  const now = useSignal(Date.now());
  useEffect(() => {
    if (live) return;
    const timer = setInterval(() => (now.value = Date.now()), 1000);
    return () => clearInterval(timer);
  }, [live]);
  if (live) {
    return (
      <span class="live" role="status">
        Live
      </span>
    );
  }
  if (!since) {
    return (
      <span class="live off" role="status">
        Connecting
      </span>
    );
  }
  const at = new Date(since).toLocaleTimeString("en-GB");
  const left = Math.max(0, Math.ceil((again - now.value) / 1000));
  return (
    <span class="live off">
      <span role="status">
        Not live<span class="phone-off"> since {at}</span>
      </span>
      <b>{left ? `, trying again in ${left} s` : ", trying again"}</b>
    </span>
  );
}

function useCounts(): { live: number } {
  const runs = useResource<Listed<RunRow>>("/api/runs?status=running&limit=1");
  useLive((changes) => {
    if (!changes.length || changes.some((each) => each.kind.startsWith("run."))) runs.refresh();
  }, 2000);
  return { live: runs.data?.total ?? 0 };
}

function Top() {
  const { live } = useCounts();
  return (
    <header class="top">
      <a class="brand" href="/runs">
        Proctor
      </a>
      <nav aria-label="Main">
        {PLACES.map(([href, title, pattern]) => (
          <a key={href} href={href} aria-current={pattern.test(here.value) ? "page" : undefined}>
            {title} {href === "/runs" && live > 0 && <span class="count phone-off">{live} live</span>}
          </a>
        ))}
      </nav>
      <div class="end">
        {!mustSignIn.value && <Live />}
        <button type="button" class="btn quiet sq" aria-label="Switch between light and dark" title="Switch between light and dark" onClick={turnTheme}>
          <Glyph name="theme" />
        </button>
        {mayWrite() && !mustSignIn.value && (
          <a class="btn main" href="/new">
            <Glyph name="plus" />
            New run
          </a>
        )}
      </div>
    </header>
  );
}

function SignIn() {
  const token = useSignal("");
  const wrong = useSignal("");
  const enter = (event: Event): void => {
    event.preventDefault();
    send("POST", "/api/session", { token: token.value.trim() }).then(
      () => location.reload(),
      (error: Error) => (wrong.value = error.message),
    );
  };
  return (
    <main id="main" class="page narrow">
      <div class="head">
        <div>
          <h1>Sign in</h1>
          <p class="lead">This server asks for a token. Whoever runs it can make one for you.</p>
        </div>
      </div>
      <form onSubmit={enter} class="signin">
        <div class={`field ${wrong.value ? "err" : ""}`}>
          <label for="token">Token</label>
          <input id="token" type="password" autocomplete="current-password" value={token.value} onInput={(event) => (token.value = event.currentTarget.value)} placeholder="pt_…" />
          <p class="hint">{wrong.value || "It begins with pt_. The browser keeps it in a cookie that no script can read."}</p>
        </div>
        <button class="btn main">Sign in</button>
      </form>
    </main>
  );
}

export function Shell({ children }: { children: ComponentChildren }) {
  const asked = useResource<Session>("/api/session");
  useEffect(() => {
    if (asked.data) session.value = asked.data;
  }, [asked.data]);
  return (
    <>
      <a class="skip" href="#main">
        Skip to content
      </a>
      <Top />
      {mustSignIn.value ? <SignIn /> : children}
      <Toasts />
      <Confirm />
      <KeyHelp />
    </>
  );
}

/** The middle of a page; its title is the tab's too. */
export function Page({ title, css = "", children }: { title: string; css?: string; children: ComponentChildren }) {
  useEffect(() => {
    document.title = title ? `${title} · Proctor` : "Proctor";
  }, [title]);
  return (
    <main id="main" class={`page ${css}`} tabIndex={-1}>
      {children}
    </main>
  );
}

export const Trials = ({ count }: { count: number }) => <>{many(count, "trial")}</>;
