// What an experiment measured at one parameter point: every metric with its spread.
import { bytes, count, duration, known, plain, words } from "../format";
import { Empty } from "../parts/controls";
import type { Attempt, TrialDetail } from "./types";

interface Summary {
  count?: number;
  mean?: number;
  p5?: number;
  p50?: number;
  p95?: number;
  p50_low?: number;
  p50_high?: number;
  std?: number;
}

const SECONDS: Record<string, number> = { s: 1, seconds: 1, ms: 1e-3, us: 1e-6, ns: 1e-9 };

/** A metric's name without its unit, and how its values are shown. */
function metricOf(name: string): [string, (value: number) => string] {
  const [, stem = name, unit = ""] = /^(.*)_(bytes|s|seconds|ms|us|ns)$/.exec(name) ?? [];
  if (!unit || stem.endsWith("_per")) return [words(name), plain];
  return [words(stem), unit === "bytes" ? bytes : (value) => duration(value * (SECONDS[unit] ?? 1))];
}

export function Values({ detail, attempt }: { detail: TrialDetail; attempt: Attempt | undefined }) {
  const metrics = Object.entries((attempt?.metrics ?? {}) as Record<string, Summary | number>);
  const params = Object.entries(detail.trial.params ?? {});
  return (
    <div class="tabbody">
      {attempt && attempt.notes?.length > 0 && (
        <div class="notice">
          <h2>Before you quote these numbers</h2>
          <ul>
            {attempt.notes.map((each) => (
              <li key={each}>{each}</li>
            ))}
          </ul>
        </div>
      )}
      {params.length > 0 && (
        <section class="leadtight">
          <h2>Parameters</h2>
          <dl class="facts">
            {params.map(([name, value]) => (
              <div key={name}>
                <dt>{words(name)}</dt>
                <dd>{value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value)}</dd>
              </div>
            ))}
          </dl>
        </section>
      )}
      <section>
        <h2>Values</h2>
        {metrics.length ? <Table metrics={metrics} /> : <Empty title={attempt ? "Nothing was measured." : "The trial has not ended yet."} />}
      </section>
    </div>
  );
}

function Table({ metrics }: { metrics: [string, Summary | number][] }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Values">
      <table class="ctab">
        <thead>
          <tr>
            <th>metric</th>
            <th class="n">median</th>
            <th class="n">95 % interval</th>
            <th class="n">mean</th>
            <th class="n phone-off">p5</th>
            <th class="n phone-off">p95</th>
            <th class="n">n</th>
          </tr>
        </thead>
        <tbody>
          {metrics.map(([name, found]) => {
            const [title, show] = metricOf(name);
            const value = typeof found === "number" ? { p50: found } : found;
            const cell = (each: number | undefined): string => (known(each) ? show(each) : "–");
            return (
              <tr key={name}>
                <td>{title}</td>
                <td class="n">
                  <b>{cell(value.p50)}</b>
                </td>
                <td class="n nw">{known(value.p50_low) && known(value.p50_high) ? `${show(value.p50_low)} – ${show(value.p50_high)}` : "–"}</td>
                <td class="n">{cell(value.mean)}</td>
                <td class="n phone-off">{cell(value.p5)}</td>
                <td class="n phone-off">{cell(value.p95)}</td>
                <td class="n">{count(value.count)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
