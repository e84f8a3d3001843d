// The list of steps: filtered by kind, windowed when there are thousands.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { count, duration, known, many } from "../format";
import { Glyph } from "../parts/marks";
import { put } from "../router";
import { GLYPHS, type Step } from "./steps";

const ROW = 27;
const KINDS: [string, string][] = [["command", "Commands"], ["edit", "Edits"], ["talk", "Words"], ["failed", "Failed"]];

interface Props {
  steps: Step[];
  shown: Step[];
  current: number;
  hits: number[];
  kind: string;
  tools: ComponentChildren;
  move: (number: number) => void;
}

export function Outline({ steps, shown, current, hits, kind, tools, move }: Props) {
  const number = (name: string): number => steps.filter((each) => (name === "failed" ? each.failed : each.kind === name)).length;
  return (
    <nav class="outl" aria-label="Steps">
      <h2 class="vh">Steps</h2>
      {tools}
      <div class="fchips">
        <button type="button" class="chip" aria-pressed={!kind} onClick={() => put({ show: null })}>
          All
        </button>
        {KINDS.map(([name, title]) => {
          const found = number(name);
          return found ? (
            <button type="button" key={name} class="chip" aria-pressed={kind === name} onClick={() => put({ show: kind === name ? null : name })}>
              {name === "failed" && <Glyph name="cross" />}
              {title} <b>{count(found)}</b>
            </button>
          ) : null;
        })}
      </div>
      <details class="phone-only">
        <summary>
          {many(shown.length, "step")}, at step {current}
        </summary>
        <List shown={shown} current={current} hits={hits} move={move} />
      </details>
      <div class="phone-off">
        <List shown={shown} current={current} hits={hits} move={move} />
      </div>
      <p class="cap phone-off">
        <kbd>j</kbd> <kbd>k</kbd> step · <kbd>e</kbd> next failure · <kbd>?</kbd> all keys
      </p>
    </nav>
  );
}

function List({ shown, current, hits, move }: { shown: Step[]; current: number; hits: number[]; move: (number: number) => void }) {
  const box = useRef<HTMLOListElement>(null);
  const [top, set] = useState(0);
  const height = 700;
  const from = Math.max(0, Math.floor(top / ROW) - 10);
  const to = Math.min(shown.length, Math.ceil((top + height) / ROW) + 10);
  const at = shown.findIndex((each) => each.number === current);
  useEffect(() => {
    const list = box.current;
    if (!list || at < 0) return;
    const place = at * ROW;
    if (place < list.scrollTop || place > list.scrollTop + list.clientHeight - ROW) list.scrollTop = place - list.clientHeight / 2;
  }, [at]);
  const found = new Set(hits);
  return (
    <ol ref={box} onScroll={(event) => set(event.currentTarget.scrollTop)}>
      {from > 0 && <li aria-hidden="true" style={{ height: `${from * ROW}px` }} />}
      {shown.slice(from, to).map((each) => (
        <li key={each.number} class={each.number === current ? "on" : ""} aria-current={each.number === current ? "step" : undefined} data-hit={found.has(each.number) ? "1" : undefined}>
          <a
            href={`#s${each.number}`}
            title={each.title}
            onClick={(event) => {
              event.preventDefault();
              move(each.number);
            }}
          >
            <span class="sn">{each.number}</span>
            <Glyph name={GLYPHS[each.kind]} />
            <span class={`trunc ${each.kind === "command" ? "mono" : ""}`}>{each.title}</span>
            <Tag step={each} />
            <small>{known(each.seconds) ? duration(each.seconds) : ""}</small>
          </a>
        </li>
      ))}
      {to < shown.length && <li aria-hidden="true" style={{ height: `${(shown.length - to) * ROW}px` }} />}
    </ol>
  );
}

function Tag({ step }: { step: Step }) {
  const failed = step.calls.find((each) => (each.exit ?? 0) !== 0);
  if (failed) return <em class="x">exit {failed.exit}</em>;
  return <em class="o" />;
}
