// The end of a log that is still written: it follows until the reader scrolls up.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, useResource } from "../api";
import { useLive } from "../live";
import { linesOf } from "../parts/terminal";
import { part } from "../router";

export interface LogInfo {
  name: string;
  size: number;
  live?: boolean;
}

const WINDOW = 16_384;

/** The last bytes of a log, as text. */
export function useTail(run: string, index: number, name: string, bytes = WINDOW, every = 700) {
  const [state, set] = useState<{ text: string; size: number }>({ text: "", size: 0 });
  const address = `/api/trials/${part(run)}/${index}/logs/${part(name)}?tail=${bytes}`;
  const load = (): void => {
    if (!name) return;
    get<string>(address).then(
      (text) => set({ text: typeof text === "string" ? text : JSON.stringify(text), size: text.length }),
      () => undefined,
    );
  };
  useEffect(load, [address]);
  useLive((changes) => {
    if (!changes.length || changes.some((each) => each.run === run && (each.index === index || each.index === null))) load();
  }, every);
  useEffect(() => {
    const timer = setInterval(load, 1500);
    return () => clearInterval(timer);
  }, [address]);
  return state;
}

export function useLogs(run: string, index: number) {
  return useResource<{ logs: LogInfo[] }>(`/api/trials/${part(run)}/${index}/logs`);
}

const best = (logs: LogInfo[]): string => (logs.find((each) => each.live && each.size > 0) ?? logs.find((each) => /agent|terminal/.test(each.name)) ?? logs[0])?.name ?? "";

/** A few lines of what a running trial writes. */
export function Tail({ run, index, lines }: { run: string; index: number; lines: number }) {
  const logs = useLogs(run, index);
  const name = best(logs.data?.logs ?? []);
  const { text } = useTail(run, index, name, 4096);
  const shown = linesOf(text).slice(-lines);
  if (!shown.some(Boolean)) return <p class="dim">Nothing has been written yet.</p>;
  return (
    <div class="term">
      <span class="ln" role="log" aria-live="off" aria-label="Output">
        {shown.map((each, at) => (
          <span key={at}>
            <a />
            <code>{each}</code>
          </span>
        ))}
      </span>
    </div>
  );
}

const MOST = 131_072;

/** A log as it grows: the server tells what is new. A stream that breaks begins again with its last lines. */
function useFollow(run: string, index: number, name: string): string {
  const [text, set] = useState("");
  useEffect(() => {
    let stream: EventSource | undefined;
    const close = (): void => {
      stream?.close();
      stream = undefined;
    };
    const open = (): void => {
      close();
      if (document.hidden) return;
      stream = new EventSource(`/api/trials/${part(run)}/${index}/logs/${part(name)}/follow?lines=400`);
      stream.onopen = () => set("");
      stream.onmessage = (event) => set((before) => (before + (JSON.parse(String(event.data)) as { text: string }).text).slice(-MOST));
      stream.addEventListener("end", close);
    };
    open();
    document.addEventListener("visibilitychange", open);
    return () => {
      document.removeEventListener("visibilitychange", open);
      close();
    };
  }, [run, index, name]);
  return text;
}

/** The whole end of a log, following. */
export function Follow({ run, index, name }: { run: string; index: number; name: string }) {
  const text = useFollow(run, index, name);
  const box = useRef<HTMLDivElement>(null);
  const [follow, set] = useState(true);
  const last = useRef(0);
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text, follow]);
  // What comes between a scroll and its event is no reason to stop: only the reader scrolls up.
  const moved = (): void => {
    const at = box.current;
    if (!at) return;
    if (at.scrollHeight - at.scrollTop - at.clientHeight < 24) set(true);
    else if (at.scrollTop < last.current) set(false);
    last.current = at.scrollTop;
  };
  const shown = linesOf(text);
  return (
    <div class="term live-t">
      <header>
        <span class={`live ${follow ? "" : "off"}`}>{follow ? "Following" : "Not following"}</span>
        <span>{name}</span>
        <span class="end">
          <button type="button" class="btn quiet sm" aria-pressed={follow} onClick={() => set(!follow)}>
            Follow
          </button>
        </span>
      </header>
      <div class="logv" ref={box} onScroll={moved} tabIndex={0} role="log" aria-live="off" aria-label={`Output of ${name}`}>
        <span class="ln">
          {shown.map((each, at) => (
            <span key={at}>
              <a />
              <code>{each}</code>
            </span>
          ))}
        </span>
      </div>
    </div>
  );
}
