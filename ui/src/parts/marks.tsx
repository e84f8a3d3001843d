// Small marks: glyphs, badges, outcome cells, intervals, meters, sparks.
import type { ComponentChildren } from "preact";
import { count, interval as span, percent, type Maybe, known } from "../format";
import { look, nameOf, toneOf, type Outcome } from "../outcomes";

export const Glyph = ({ name }: { name: string }) => <i class={`g g-${name}`} aria-hidden="true" />;

export const Spin = () => <i class="spin" aria-hidden="true" />;

const MARKS: Record<string, string> = { good: "check", warn: "bang", bad: "cross" };

export function Badge({ tone = "", mark, children }: { tone?: string; mark?: string | false; children: ComponentChildren }) {
  const glyph = mark === false ? undefined : (mark ?? MARKS[tone]);
  return (
    <span class={`badge ${tone}`}>
      {tone === "run" ? <Spin /> : glyph ? <Glyph name={glyph} /> : null}
      {children}
    </span>
  );
}

export function OutcomeBadge({ outcome, state, reward }: { outcome: Outcome; state?: string; reward?: Maybe }) {
  if (!outcome && (state === "running" || state === "leased")) return <Badge tone="run">{nameOf(outcome, state)}</Badge>;
  const shown = outcome === "partial" && known(reward) ? `partial ${reward.toFixed(2)}` : nameOf(outcome, state);
  return (
    <Badge tone={toneOf(outcome)} mark={outcome === "partial" ? "theme" : undefined}>
      {shown}
    </Badge>
  );
}

interface SignProps {
  outcome: Outcome;
  state?: string;
  reward?: Maybe;
  href?: string;
  title?: string;
  tab?: number;
  fresh?: boolean;
}

/** One trial as a cell; the shape and the letter say what the colour says. */
export function Sign({ outcome, state, reward, href, title, tab, fresh }: SignProps) {
  const { css, letter } = look(outcome, state);
  const level = outcome === "partial" ? { "--v": String(Math.round(Math.min(Math.max(reward ?? 0.5, 0.12), 0.88) * 100)) } : undefined;
  const all = `c ${css}${fresh ? " fresh" : ""}`;
  if (!href) return <i class={all} data-l={letter} style={level} title={title} role={title ? "img" : undefined} aria-label={title} />;
  return <a class={all} data-l={letter} style={level} href={href} title={title} aria-label={title} tabIndex={tab} />;
}

/** A value with its interval, all in per cent of the width. */
export function Interval({ value, low, high, big, tone }: { value: Maybe; low: Maybe; high: Maybe; big?: boolean; tone?: string }) {
  if (!known(value)) return null;
  const places = { "--m0": value * 100, "--a": (low ?? value) * 100, "--b": (high ?? value) * 100 };
  const style = Object.fromEntries(Object.entries(places).map(([name, each]) => [name, each.toFixed(1)]));
  const told = `${percent(value)}${known(low) && known(high) ? `, 95 % interval ${span(low, high)}` : ""}`;
  return <span class={`iv ${big ? "big" : ""} ${tone ?? ""}`} style={style} role="img" aria-label={told} />;
}

export const Scale = () => (
  <div class="scale" aria-hidden="true">
    {[0, 25, 50, 75, 100].map((each) => (
      <span key={each} style={{ left: `${each}%` }}>
        {each === 100 ? "100 %" : each}
      </span>
    ))}
  </div>
);

export function Meter({ part, whole, tall, tone = "", label }: { part: number; whole: number; tall?: boolean; tone?: string; label?: string }) {
  const share = whole > 0 ? Math.min(1, part / whole) : 0;
  const told = label ?? `${count(part)} of ${count(whole)}`;
  return (
    <span class={`meter ${tall ? "tall" : ""} ${tone}`} role="img" aria-label={told}>
      <i style={{ "--v": (share * 100).toFixed(1) }} />
    </span>
  );
}

export function Spark({ values }: { values: Maybe[] }) {
  const points = values.map((each, at) => [at, each] as const).filter((each): each is readonly [number, number] => known(each[1]));
  if (points.length < 2) return null;
  const found = points.map((each) => each[1]);
  const low = Math.min(...found);
  const range = Math.max(...found) - low || 1;
  const place = ([at, value]: readonly [number, number]): string =>
    `${(2 + (at / Math.max(1, values.length - 1)) * 88).toFixed(1)},${(17 - ((value - low) / range) * 14).toFixed(1)}`;
  const newest = place(points[points.length - 1] as readonly [number, number]).replace(",", " ");
  return (
    <svg class="spark" width="92" height="20" viewBox="0 0 92 20" role="img" aria-label={`last ${values.length} runs of this name`}>
      <polyline points={points.map(place).join(" ")} />
      <path class="d" d={`M${newest}h0`} />
    </svg>
  );
}
