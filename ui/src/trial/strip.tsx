// Where the time went: one segment per phase and per step, as wide as it took.
import { duration, words } from "../format";
import type { Step } from "./steps";
import type { Attempt } from "./types";

const COLOURS: Record<string, string> = { before: "var(--s4)", talk: "var(--s0)", command: "var(--s1)", edit: "var(--s3)", tool: "var(--s5)", note: "var(--s4)", instruction: "var(--s4)", after: "var(--s2)" };
const BEFORE = ["image", "start", "setup"];
const AFTER = ["collect", "verify", "stop"];
const MOST = 250;

interface Segment {
  seconds: number;
  colour: string;
  title: string;
  step?: number;
  failed?: boolean;
}

export function Strip({ attempt, steps, current, move }: { attempt: Attempt | undefined; steps: Step[]; current: number; move: (number: number) => void }) {
  const phases = attempt?.phases_s ?? {};
  const phase = (name: string, colour: string): Segment => ({ seconds: phases[name] ?? 0, colour: COLOURS[colour] ?? "", title: `${words(name)}, ${duration(phases[name])}` });
  const inside = joined(steps.filter((each) => each.seconds));
  const middle: Segment[] = inside.length
    ? inside.map(({ first, last, seconds, kind, failed }) => ({ seconds, colour: COLOURS[kind] ?? "", title: `${first === last ? "step" : "steps"} ${first.number}${first === last ? `: ${first.title}` : `–${last.number}`}, ${duration(seconds)}`, step: first.number, failed }))
    : [phase("agent", "talk")];
  const all = [...BEFORE.map((each) => phase(each, "before")), ...middle, ...AFTER.map((each) => phase(each, "after"))].filter((each) => each.seconds > 0);
  const total = all.reduce((sum, each) => sum + each.seconds, 0);
  if (!total || all.length < 2) return null;
  const kinds: [string, string, number][] = [
    ["image and start", "before", sum(phases, BEFORE)],
    ["words", "talk", seconds(steps, "talk")],
    ["commands", "command", seconds(steps, "command")],
    ["edits", "edit", seconds(steps, "edit")],
    ["other tools", "tool", seconds(steps, "tool")],
    ["tests", "after", sum(phases, AFTER)],
  ];
  return (
    <div class="strip">
      <div class="seg2" role="group" aria-label="Where the time went">
        {all.map((each, at) =>
          each.step === undefined ? (
            <a key={at} role="img" aria-label={each.title} title={each.title} style={{ "--v": ((100 * each.seconds) / total).toFixed(2), "--c": each.colour }} />
          ) : (
            <a
              key={at}
              href={`#s${each.step}`}
              tabIndex={-1}
              class={`${each.failed ? "er" : ""} ${each.step === current ? "now" : ""}`}
              title={each.title}
              aria-label={each.title}
              style={{ "--v": ((100 * each.seconds) / total).toFixed(2), "--c": each.colour }}
              onClick={(event) => {
                event.preventDefault();
                move(each.step ?? 1);
              }}
            />
          ),
        )}
      </div>
      <ul class="legend">
        {kinds.filter(([, , spent]) => spent > 0).map(([name, colour, spent]) => (
          <li key={name}>
            <i class="sw" style={{ background: COLOURS[colour] }} />
            {name} <b>{duration(spent)}</b>
          </li>
        ))}
        <li class="phone-off">
          <span class="dim">red foot: the command failed. Click to jump.</span>
        </li>
      </ul>
    </div>
  );
}

interface Piece {
  first: Step;
  last: Step;
  seconds: number;
  kind: string;
  failed: boolean;
}

/** Steps as pieces: one each, or so many together that a screen can show them; the longest kind colours them. */
function joined(steps: Step[]): Piece[] {
  const size = Math.ceil(steps.length / MOST) || 1;
  const pieces: Piece[] = [];
  for (let at = 0; at < steps.length; at += size) {
    const part = steps.slice(at, at + size);
    const [first, last] = [part[0], part[part.length - 1]];
    if (!first || !last) continue;
    const longest = part.reduce((best, each) => ((each.seconds ?? 0) > (best.seconds ?? 0) ? each : best), first);
    pieces.push({ first, last, seconds: part.reduce((total, each) => total + (each.seconds ?? 0), 0), kind: longest.kind, failed: part.some((each) => each.failed) });
  }
  return pieces;
}

const sum = (phases: Record<string, number>, names: string[]): number => names.reduce((total, each) => total + (phases[each] ?? 0), 0);
const seconds = (steps: Step[], kind: string): number => steps.filter((each) => each.kind === kind).reduce((total, each) => total + (each.seconds ?? 0), 0);
