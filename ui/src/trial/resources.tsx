// Time, memory and the rest of an attempt, its series over time, and every call of a model.
import { useEffect, useRef } from "preact/hooks";
import { useResource } from "../api";
import { bytes, count, dollars, duration, known, plain, tokens, words } from "../format";
import { Bones, Empty } from "../parts/controls";
import { Meter } from "../parts/marks";
import { part } from "../router";
import type { Attempt, TrialDetail } from "./types";

interface Series {
  name: string;
  unit?: string;
  at: number[];
  values: (number | null)[];
  limit?: number | null;
}

interface Happened {
  at: number;
  kind: string;
  text: string;
}

interface CallRow {
  number?: number;
  model?: string;
  status?: number | string;
  started_at?: number;
  waited_s?: number;
  first_token_s?: number | null;
  worked_s?: number;
  took_s?: number;
  prompt_tokens?: number;
  cached_tokens?: number;
  completion_tokens?: number;
  cost_usd?: number | null;
}

export function Resources({ detail, attempt }: { detail: TrialDetail; attempt: Attempt | undefined }) {
  const base = `/api/trials/${part(detail.run.id)}/${detail.trial.index}`;
  const suffix = attempt ? `?attempt=${attempt.number}` : "";
  const series = useResource<unknown>(attempt ? `${base}/resources${suffix}` : "");
  const calls = useResource<unknown>(attempt?.usage ? `${base}/calls${suffix}` : "");
  if (!attempt) return <Empty title="Times are known when the trial has ended." />;
  return (
    <div class="tabbody">
      <Phases attempt={attempt} />
      <Ledger attempt={attempt} />
      {series.loading && !series.data ? <Bones rows={3} /> : <Charts series={seriesOf(series.data)} events={(series.data as { events?: Happened[] } | undefined)?.events ?? []} />}
      <Calls calls={rowsOf(calls.data)} />
    </div>
  );
}

function rowsOf(data: unknown): CallRow[] {
  if (Array.isArray(data)) return data as CallRow[];
  const inside = data as { calls?: CallRow[]; items?: CallRow[] } | undefined;
  return inside?.calls ?? inside?.items ?? [];
}

/** Series as the server names them: a list, or columns by name with one column of times. */
function seriesOf(data: unknown): Series[] {
  const inside = data as { series?: unknown } | undefined;
  const found = inside?.series ?? data;
  if (Array.isArray(found)) return (found as Series[]).filter((each) => Array.isArray(each.at) && Array.isArray(each.values));
  if (!found || typeof found !== "object") return [];
  const columns = found as Record<string, number[]>;
  const time = columns.t ?? columns.at ?? columns.t_s;
  if (!Array.isArray(time)) return [];
  return Object.entries(columns).filter(([name, values]) => !["t", "at", "t_s"].includes(name) && Array.isArray(values)).map(([name, values]) => ({ name, at: time, values }));
}

const COLOURS = ["var(--s4)", "var(--s0)", "var(--s1)", "var(--s2)", "var(--s3)", "var(--s5)", "var(--ink-3)", "var(--rule)"];

function Phases({ attempt }: { attempt: Attempt }) {
  const found = Object.entries(attempt.phases_s ?? {}).filter(([name, seconds]) => seconds > 0 && name !== "provider_wait");
  const total = found.reduce((sum, [, each]) => sum + each, 0);
  if (!total) return null;
  return (
    <section class="leadtight">
      <div class="h2">
        <h2>Where the time went</h2>
        <small>{duration(total)}</small>
      </div>
      <div class="phases" role="img" aria-label={found.map(([name, seconds]) => `${words(name)} ${duration(seconds)}`).join(", ")}>
        {found.map(([name, seconds], at) => (
          <i key={name} title={`${words(name)}, ${duration(seconds)}`} style={{ "--v": ((100 * seconds) / total).toFixed(2), "--c": COLOURS[at % COLOURS.length] }} />
        ))}
      </div>
      <ul class="legend">
        {found.map(([name, seconds], at) => (
          <li key={name}>
            <i class="sw" style={{ background: COLOURS[at % COLOURS.length] }} />
            {words(name)} <b>{duration(seconds)}</b>
          </li>
        ))}
      </ul>
      {attempt.phases_s?.provider_wait ? <p class="cap">{duration(attempt.phases_s.provider_wait)} of it were spent waiting for the model’s provider.</p> : null}
    </section>
  );
}

const SHOWN: [string, string, (value: number) => string, string][] = [
  ["cpu_s", "CPU time", duration, ""],
  ["peak_memory_bytes", "peak memory", bytes, "memory_bytes"],
  ["disk_bytes", "disk", bytes, "storage_bytes"],
  ["read_bytes", "read", bytes, ""],
  ["write_bytes", "written", bytes, ""],
  ["throttled_s", "throttled", duration, ""],
  ["oom_kills", "killed for memory", plain, ""],
];

function Ledger({ attempt }: { attempt: Attempt }) {
  const ledger = (attempt.ledger ?? {}) as Record<string, unknown>;
  const limits = (ledger.limits ?? {}) as Record<string, number | string | null>;
  const enforced = (ledger.enforced ?? {}) as Record<string, string>;
  const rows = SHOWN.filter(([name]) => typeof ledger[name] === "number");
  if (!rows.length) return null;
  return (
    <section>
      <h2>Resources</h2>
      <table class="ctab">
        <thead>
          <tr>
            <th>what</th>
            <th class="n">used</th>
            <th class="cm">
              <span class="vh">of the limit</span>
            </th>
            <th class="n">limit</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, title, show, limit]) => {
            const used = ledger[name] as number;
            const most = limits[limit];
            return (
              <tr key={name}>
                <td>{title}</td>
                <td class="n">{show(used)}</td>
                <td>{typeof most === "number" && <Meter part={used} whole={most} label={`${show(used)} of ${show(most)}`} tone={used >= most ? "bad" : ""} />}</td>
                <td class="n">{typeof most === "number" ? show(most) : "–"}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {Object.keys(enforced).length > 0 && (
        <details class="folded">
          <summary>Which limits were enforced, and how</summary>
          <dl class="kv">
            {Object.entries(enforced).map(([name, how]) => (
              <>
                <dt>{words(name)}</dt>
                <dd>{how}</dd>
              </>
            ))}
          </dl>
        </details>
      )}
    </section>
  );
}

function Charts({ series, events }: { series: Series[]; events: Happened[] }) {
  const drawn = series.filter((each) => each.values.filter(known).length > 1);
  if (!drawn.length) return null;
  return (
    <section>
      <h2>Over time</h2>
      {drawn.map((each) => (
        <LongSeries key={each.name} series={each} />
      ))}
      {events.length > 0 && (
        <ul class="listed" aria-label="What happened">
          {events.map((each, at) => (
            <li key={at}>
              {duration(each.at)}: {each.text}
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function LongSeries({ series }: { series: Series }) {
  const holder = useRef<HTMLDivElement>(null);
  const show = /bytes/.test(series.name) ? bytes : /_s$|seconds/.test(series.name) ? duration : plain;
  const top = Math.max(...series.values.filter(known));
  useEffect(() => {
    const element = holder.current;
    if (!element) return;
    let gone = false;
    let plot: { destroy: () => void; setSize: (size: { width: number; height: number }) => void } | undefined;
    void import("../parts/plot").then(({ draw }) => {
      if (!gone) plot = draw(element, series.at, series.values, show, series.limit ?? null);
    });
    const watch = new ResizeObserver(() => plot?.setSize({ width: element.clientWidth, height: 150 }));
    watch.observe(element);
    return () => {
      gone = true;
      watch.disconnect();
      plot?.destroy();
    };
  }, [series]);
  return (
    <figure class="rs">
      <h3>
        {words(series.name.replace(/_(bytes|s)$/, ""))} <small>at most {show(top)}</small>
      </h3>
      <div ref={holder} class="longplot" role="img" aria-label={`${words(series.name)} over time, at most ${show(top)}`} />
    </figure>
  );
}

function Calls({ calls }: { calls: CallRow[] }) {
  if (!calls.length) return null;
  const timed = calls.some((each) => each.worked_s ?? each.took_s);
  const most = Math.max(...calls.map((each) => (each.waited_s ?? 0) + (each.worked_s ?? each.took_s ?? 0)), 0.001);
  return (
    <section>
      <div class="h2">
        <h2>Model calls</h2>
        <small>{count(calls.length)}{timed ? "; hatched: waiting, light: until the first token, solid: the answer" : ""}</small>
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label="Model calls">
        <table class="mct">
          <thead>
            <tr>
              <th class="n">call</th>
              <th>model</th>
              {timed && <th class="ww">wait and work</th>}
              {timed && <th class="n">time</th>}
              <th class="n">in</th>
              <th class="n phone-off">cached</th>
              <th class="n">out</th>
              <th class="n">cost</th>
            </tr>
          </thead>
          <tbody>
            {calls.slice(0, 500).map((each, at) => {
              const worked = each.worked_s ?? each.took_s ?? 0;
              const first = Math.min(Math.max((each.first_token_s ?? 0) - (each.waited_s ?? 0), 0), worked);
              const share = (value: number): string => ((100 * value) / most).toFixed(1);
              return (
                <tr key={at}>
                  <td class="n">{each.number ?? at + 1}</td>
                  <td class="nw">{each.model ?? "–"}</td>
                  {timed && <td class="ww">
                    <span class="wwb" role="img" aria-label={`waited ${duration(each.waited_s ?? 0)}, worked ${duration(worked)}`}>
                      <i style={{ "--v": share(each.waited_s ?? 0), "--c": "var(--hatch),var(--apart-bg)" }} />
                      <i style={{ "--v": share(first), "--c": "color-mix(in srgb,var(--s0) 45%,var(--surface))" }} />
                      <i style={{ "--v": share(worked - first), "--c": "var(--s0)" }} />
                    </span>
                  </td>}
                  {timed && <td class="n">{duration(worked)}</td>}
                  <td class="n">{tokens(each.prompt_tokens)}</td>
                  <td class="n phone-off">{tokens(each.cached_tokens)}</td>
                  <td class="n">{tokens(each.completion_tokens)}</td>
                  <td class="n">{each.cost_usd === null ? "unknown" : dollars(each.cost_usd)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}
