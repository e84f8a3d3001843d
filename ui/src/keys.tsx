// The keyboard map. Never inside a field; `?` lists it; it can be switched off in the settings.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { store, stored } from "./format";
import { go } from "./router";

type Action = (event: KeyboardEvent) => void;

const maps: Record<string, Action>[] = [];
export const helpShown = signal(false);
export const keysOn = signal(stored("keys") !== "off");
let before = "";

const PLACES: Record<string, string> = { r: "/runs", t: "/tasks", h: "/history", c: "/costs", q: "/queue", s: "/settings", n: "/new", l: "/leaderboard" };

export const KEYS: [string[], string][] = [
  [["/"], "filter"],
  [["j", "k"], "next, previous row or step"],
  [["Enter"], "open"],
  [["x"], "mark a run"],
  [["c"], "compare the marked runs"],
  [["[", "]"], "previous, next trial"],
  [["e"], "next failure"],
  [["f"], "find in the transcript"],
  [["n", "N"], "next, previous match"],
  [["o"], "fold or unfold"],
  [["y"], "copy the link"],
  [["g", "r"], "go to runs (t tasks, h history, c costs, q queue, s settings)"],
  [["Esc"], "clear, close"],
  [["?"], "this list"],
];

export function switchKeys(on: boolean): void {
  keysOn.value = on;
  store("keys", on ? "" : "off");
}

const inField = (event: KeyboardEvent): boolean => {
  const at = event.target as HTMLElement;
  return at.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName);
};

function press(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || inField(event) || !keysOn.value) return;
  if (document.querySelector("dialog[open]")) return;
  const { key } = event;
  if (before === "g" && PLACES[key]) {
    before = "";
    event.preventDefault();
    return go(PLACES[key]);
  }
  before = key;
  for (let at = maps.length - 1; at >= 0; at -= 1) {
    const action = maps[at]?.[key];
    if (action) {
      event.preventDefault();
      return action(event);
    }
  }
  if (key === "?") helpShown.value = true;
  else if (key === "/" || key === "f") {
    const field = document.querySelector<HTMLInputElement>(`input[data-find="${key}"]`) ?? document.querySelector<HTMLInputElement>("input[data-find]");
    if (!field) return;
    event.preventDefault();
    field.focus();
    field.select();
  }
}

export const listenKeys = (): void => document.addEventListener("keydown", press);

/** Keys of the page that is shown. */
export function useKeys(map: Record<string, Action>): void {
  const latest = useRef(map);
  latest.current = map;
  useEffect(() => {
    const mine = new Proxy({} as Record<string, Action>, { get: (_, key) => latest.current[key as string] });
    maps.push(mine);
    return () => void maps.splice(maps.indexOf(mine), 1);
  }, []);
}

export function KeyHelp() {
  const dialog = useRef<HTMLDialogElement>(null);
  const shown = helpShown.value;
  useEffect(() => {
    if (shown) dialog.current?.showModal();
    else dialog.current?.close();
  }, [shown]);
  return (
    <dialog class="dialog" ref={dialog} onClose={() => (helpShown.value = false)} aria-labelledby="keys-title">
      <header id="keys-title">Keys</header>
      <div class="in">
        <dl class="keylist">
          {KEYS.map(([keys, text]) => (
            <div key={text}>
              <dt>
                {keys.map((each) => (
                  <kbd key={each}>{each}</kbd>
                ))}
              </dt>
              <dd>{text}</dd>
            </div>
          ))}
        </dl>
      </div>
      <footer>
        <button type="button" class="btn" onClick={() => (helpShown.value = false)}>
          Close
        </button>
      </footer>
    </dialog>
  );
}
