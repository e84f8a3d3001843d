// One event stream while the tab is visible. Pages subscribe; changes are told once per frame.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

export interface Change {
  id: number;
  run: string;
  at: number;
  kind: string;
  index: number | null;
  data: Record<string, unknown>;
}

type Listener = (changes: Change[]) => void;

export interface Connection {
  live: boolean;
  /** Since when it is not live, in milliseconds. */
  since: number;
  /** When it tries again. */
  again: number;
}

export const connection = signal<Connection>({ live: false, since: 0, again: 0 });
const listeners = new Set<Listener>();
let abort: AbortController | undefined;
let last = 0;
let wait = 1000;
let timer = 0;
let heap: Change[] = [];
let frame = 0;

function hand(): void {
  frame = 0;
  const changes = heap;
  heap = [];
  for (const each of listeners) each(changes);
}

function take(text: string): void {
  let told: Change | Change[];
  try {
    told = JSON.parse(text) as Change | Change[];
  } catch {
    return;
  }
  for (const each of Array.isArray(told) ? told : [told]) {
    last = Math.max(last, each.id);
    if (each.kind !== "stream.open") heap.push(each);
  }
  if (!frame && heap.length) frame = requestAnimationFrame(hand);
}

/** Read a stream of events of any kind, which an EventSource could not: it must know every kind by name. */
async function read(stream: ReadableStream<Uint8Array>): Promise<void> {
  const reader = stream.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = parts.pop() ?? "";
    for (const each of parts) {
      const data = each.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (data.length) take(data.join("\n"));
    }
  }
}

async function open(): Promise<void> {
  clearTimeout(timer);
  abort?.abort();
  if (document.hidden) return;
  const mine = (abort = new AbortController());
  try {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (last) headers["Last-Event-ID"] = String(last);
    const response = await fetch("/api/events", { headers, signal: mine.signal, cache: "no-store" });
    if (response.status === 401) return;
    if (!response.ok || !response.body) throw new Error(`answered ${response.status}`);
    wait = 1000;
    const missed = connection.value.since > 0;
    connection.value = { live: true, since: 0, again: 0 };
    // What happened while nobody listened comes with the stream, as far as the server still has it; ask anew too.
    if (missed) for (const each of listeners) each([]);
    await read(response.body);
  } catch {
    // An ended stream and one that never began are the same to a reader: it is not live.
  }
  if (abort !== mine || document.hidden) return;
  const since = connection.value.since || Date.now();
  connection.value = { live: false, since, again: Date.now() + wait };
  timer = window.setTimeout(() => void open(), wait);
  wait = Math.min(wait * 2, 15_000);
}

export function listenLive(): void {
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) return void open();
    clearTimeout(timer);
    abort?.abort();
    abort = undefined;
  });
  addEventListener("online", () => void open());
  addEventListener("pagehide", () => abort?.abort());
  void open();
}

/** Call `told` with what has changed, at most every `every` milliseconds; an empty list says that something may have. */
export function useLive(told: Listener, every = 500): void {
  const latest = useRef(told);
  latest.current = told;
  useEffect(() => {
    let saved: Change[] = [];
    let due = 0;
    const listener: Listener = (changes) => {
      saved.push(...changes);
      if (due) return;
      due = window.setTimeout(() => {
        due = 0;
        const now = saved;
        saved = [];
        latest.current(now);
      }, every);
    };
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
      clearTimeout(due);
    };
  }, []);
}
