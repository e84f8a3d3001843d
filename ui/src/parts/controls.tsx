// Controls: find, tabs, copy, commands, dialogs, toasts, and what stands where data is missing.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Problem } from "../api";
import { go } from "../router";
import { Glyph } from "./marks";

export function Find({ value, set, label, hint = "/", placeholder }: { value: string; set: (text: string) => void; label: string; hint?: string; placeholder?: string }) {
  const [text, show] = useState(value);
  const due = useRef(0);
  useEffect(() => show(value), [value]);
  const change = (next: string): void => {
    show(next);
    clearTimeout(due.current);
    due.current = window.setTimeout(() => set(next), 150);
  };
  return (
    <div class="find">
      <Glyph name="search" />
      <input
        type="search"
        data-find={hint}
        value={text}
        placeholder={placeholder ?? label}
        aria-label={label}
        onInput={(event) => change(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          change("");
          event.currentTarget.blur();
        }}
      />
      <kbd>{hint}</kbd>
    </div>
  );
}

export interface Tab {
  href: string;
  title: string;
  count?: string | number | null | undefined;
  on: boolean;
}

export function Tabs({ tabs, label }: { tabs: Tab[]; label: string }) {
  const bar = useRef<HTMLElement>(null);
  const on = tabs.find((each) => each.on)?.href;
  useEffect(() => {
    const now = bar.current?.querySelector<HTMLElement>("[aria-current]");
    if (now && bar.current) bar.current.scrollLeft = Math.max(0, now.offsetLeft - bar.current.clientWidth / 2);
  }, [on]);
  return (
    <nav class="tabs" aria-label={label} ref={bar}>
      {tabs.map((each) => (
        <a key={each.title} href={each.href} aria-current={each.on ? "page" : undefined}>
          {each.title} {each.count !== undefined && each.count !== null && each.count !== 0 && <span class="count">{each.count}</span>}
        </a>
      ))}
    </nav>
  );
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

export function Copy({ text, label = "Copy", small = true, link }: { text: () => string; label?: string; small?: boolean; link?: boolean }) {
  const [done, tell] = useState(false);
  const press = (): void => {
    void copy(text()).then(() => {
      tell(true);
      setTimeout(() => tell(false), 1500);
    });
  };
  return (
    <button type="button" class={`btn quiet sq ${small ? "sm" : ""}`} aria-label={done ? "Copied" : label} title={done ? "Copied" : label} onClick={press}>
      <Glyph name={done ? "check" : link ? "link" : "copy"} />
    </button>
  );
}

export const Command = ({ text }: { text: string }) => (
  <div class="cmd">
    <code>{text}</code>
    <Copy text={() => text} label={`Copy: ${text}`} />
  </div>
);

/** What a refusal looks like: what happened, and what to do next. */
export function Trouble({ problem, retry, head, title: named }: { problem: Problem; retry?: () => void; head?: boolean; title?: string }) {
  const title = named ? named : problem.status === 404 ? "Not found" : problem.status === 403 ? "Not allowed" : problem.status ? "This could not be shown" : "No answer";
  const errors = problem.errors.filter((each) => !problem.message.includes(each.message));
  return (
    <div class="notice bad" role="alert">
      {head ? <h1>{title}</h1> : <h2>{title}</h2>}
      <p>{problem.message}</p>
      {errors.length > 0 && (
        <ul>
          {errors.map((each) => (
            <li key={each.where + each.message}>
              <code>{each.where}</code>: {each.message}
            </li>
          ))}
        </ul>
      )}
      {retry && (
        <p class="acts start">
          <button type="button" class="btn" onClick={retry}>
            Try again
          </button>
          {head && (
            <a class="btn quiet" href="/runs">
              All runs
            </a>
          )}
        </p>
      )}
    </div>
  );
}

/** Placeholders in the height of what is to come; shown only when it takes long. */
export function Bones({ rows = 6 }: { rows?: number }) {
  const [late, tell] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => tell(true), 150);
    return () => clearTimeout(timer);
  }, []);
  if (!late) return <div class="bones" aria-busy="true" />;
  return (
    <div class="bones" aria-busy="true">
      <span class="vh" role="status">
        Loading
      </span>
      {Array.from({ length: rows }, (_, at) => (
        <p key={at} aria-hidden="true">
          <span class="bone" style={{ "--w": `${[62, 48, 71, 55][at % 4]}%` }} />
        </p>
      ))}
    </div>
  );
}

export const Empty = ({ title, children }: { title: string; children?: ComponentChildren }) => (
  <div class="box empty">
    <p>
      <b>{title}</b>
    </p>
    {children && <div class="dim">{children}</div>}
  </div>
);

export interface Toast {
  id: number;
  text: string;
  href?: string;
  bad?: boolean;
}

export const toasts = signal<Toast[]>([]);
let toastId = 0;

export function toast(text: string, options: { href?: string; bad?: boolean } = {}): void {
  const made = { id: ++toastId, text, ...options };
  toasts.value = [...toasts.value.slice(-3), made];
  if (!options.bad) setTimeout(() => drop(made.id), 6000);
}

const drop = (id: number): void => {
  toasts.value = toasts.value.filter((each) => each.id !== id);
};

export const Toasts = () => (
  <div class="toasts" role="status" aria-live="polite">
    {toasts.value.map((each) => (
      <div class="toast" key={each.id}>
        <Glyph name={each.bad ? "cross" : "check"} />
        <span>{each.href ? <a href={each.href}>{each.text}</a> : each.text}</span>
        <button type="button" class="btn quiet sm sq end" aria-label="Close" onClick={() => drop(each.id)}>
          <Glyph name="cross" />
        </button>
      </div>
    ))}
  </div>
);

interface Question {
  title: string;
  text: ComponentChildren;
  yes: string;
  act: () => void;
}

const question = signal<Question | null>(null);

/** Ask before what cannot be undone. */
export const confirm = (asked: Question): void => {
  question.value = asked;
};

export function Confirm() {
  const dialog = useRef<HTMLDialogElement>(null);
  const asked = question.value;
  useEffect(() => {
    if (asked) dialog.current?.showModal();
    else dialog.current?.close();
  }, [asked]);
  const close = (): void => {
    question.value = null;
  };
  return (
    <dialog class="dialog" ref={dialog} onClose={close} aria-labelledby="confirm-title">
      {asked && (
        <>
          <header id="confirm-title">{asked.title}</header>
          <div class="in">{asked.text}</div>
          <footer>
            <button type="button" class="btn" autofocus onClick={close}>
              Keep it
            </button>
            <button
              type="button"
              class="btn danger"
              onClick={() => {
                close();
                asked.act();
              }}
            >
              {asked.yes}
            </button>
          </footer>
        </>
      )}
    </dialog>
  );
}

/** A button that does something on the server: it keeps its width, and says what went wrong. */
export function Act({ act, children, css = "", then, title, glyph, off = false }: { off?: boolean; act: () => Promise<unknown>; children: ComponentChildren; css?: string; then?: string | (() => void); title?: string; glyph?: string }) {
  const [busy, tell] = useState(false);
  const press = (): void => {
    tell(true);
    act().then(
      () => {
        tell(false);
        if (typeof then === "string") go(then);
        else then?.();
      },
      (error: Error) => {
        tell(false);
        toast(error.message, { bad: true });
      },
    );
  };
  return (
    <button type="button" class={`btn ${css}`} disabled={busy || off} aria-busy={busy} onClick={press} title={title}>
      {glyph && <Glyph name={glyph} />}
      {children}
    </button>
  );
}
