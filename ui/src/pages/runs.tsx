// The list of runs: live ones first, then what waits for a person, then by day.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { apart, count, dollars, duration, exact, interval, many, moment, percent, when, words } from "../format";
import { useKeys } from "../keys";
import { useLive } from "../live";
import { Bones, Empty, Find, Trouble } from "../parts/controls";
import { Badge, Glyph, Interval, Meter, Spark, Spin } from "../parts/marks";
import { useList } from "../parts/window";
import { go, part, put, query } from "../router";
import { Page } from "../shell";
import type { RunRow } from "../types";
import { FirstVisit } from "./first";

const marked = signal<Map<string, string>>(new Map());
const KINDS: [string, string, string][] = [
  ["", "All", ""],
  ["status=running", "Live", "status"],
  ["kind=task", "Tasks", "kind"],
  ["kind=experiment", "Experiments", "kind"],
];
const SORTS: [string, string][] = [["", "Newest first"], ["created", "Oldest first"], ["-cost", "Dearest first"], ["-score", "Best first"], ["name", "By name"]];
const isLive = (run: RunRow): boolean => run.status === "running" || (run.wanted === true && run.status !== "done" && run.status !== "cancelled");
const VERDICTS: Record<string, string> = { pass: "good", regression: "bad", fail: "bad", inconclusive: "warn", infrastructure: "apart" };

const needsYou = (run: RunRow): boolean => run.status === "interrupted" && !run.wanted;

export function toggle(run: RunRow): void {
  const next = new Map(marked.value);
  if (!next.delete(run.id)) next.set(run.id, run.name);
  marked.value = next;
}

function address(): string {
  const now = query.value;
  const wanted = new URLSearchParams();
  for (const name of ["q", "status", "kind", "sort"]) {
    const value = now.get(name);
    if (value) wanted.set(name, value);
  }
  const text = wanted.toString();
  return "/api/runs" + (text ? `?${text}` : "");
}

function groupsOf(runs: RunRow[]): [string, RunRow[]][] {
  const groups = new Map<string, RunRow[]>();
  for (const run of runs) {
    const name = isLive(run) ? "Live" : needsYou(run) ? "Needs you" : dayOf(run);
    groups.set(name, [...(groups.get(name) ?? []), run]);
  }
  const rank = (name: string): number => (name === "Live" ? 0 : name === "Needs you" ? 1 : 2);
  return [...groups].sort((a, b) => rank(a[0]) - rank(b[0]));
}

function dayOf(run: RunRow): string {
  const at = moment(run.created_at);
  if (!at) return "Earlier";
  const days = Math.floor((new Date().setHours(23, 59, 59, 999) - at.getTime()) / 86_400_000);
  return days <= 0 ? "Today" : days === 1 ? "Yesterday" : days < 7 ? "This week" : "Earlier";
}

export function subjectOf(run: RunRow): string {
  if (run.kind === "experiment") return `${many(run.total, "parameter point")}`;
  const agents = run.agents.length > 2 ? many(run.agents.length, "agent") : run.agents.join(", ");
  const models = run.models.length > 2 ? many(run.models.length, "model") : run.models.join(", ");
  return [agents, models].filter(Boolean).join(" × ") || words(run.kind);
}

function StateMark({ run }: { run: RunRow }) {
  if (isLive(run)) {
    return (
      <span class="st run">
        {run.status === "running" ? <Spin /> : <Glyph name="dots" />}
        <span class="vh">{run.status}</span>
      </span>
    );
  }
  const verdict = run.gate?.verdict;
  const bad = verdict ? VERDICTS[verdict] === "bad" : run.status === "failed";
  const done = run.status === "finished" || run.status === "done";
  const lost = done && !run.scored;
  const [tone, glyph] = bad ? ["bad-t", "cross"] : needsYou(run) || lost ? ["warn-t", "bang"] : done ? ["good-t", "check"] : ["dim", "equal"];
  return (
    <span class={`st ${tone}`}>
      <Glyph name={glyph} />
      <span class="vh">{verdict ? `gate: ${verdict}` : lost ? "done, nothing scored" : words(run.status)}</span>
    </span>
  );
}

function Progress({ run }: { run: RunRow }) {
  const open = isLive(run) || needsYou(run);
  if (!open) return <small>{run.done < run.total ? `${count(run.done)} of ${many(run.total, "trial")}` : many(run.total, "trial")}</small>;
  if (run.done >= run.total) return <small>{many(run.total, "trial")}</small>;
  return (
    <>
      <Meter part={run.done} whole={run.total} label={`${run.done} of ${run.total} trials`} />
      <small>
        {count(run.done)}/{count(run.total)}
        {needsYou(run) ? " · stopped" : ""}
      </small>
    </>
  );
}

function ScoreCell({ run }: { run: RunRow }) {
  const { score, scores } = run;
  const stopped = needsYou(run) && run.failure;
  const names = apart(scores?.map((each) => each.label) ?? []);
  if (!score && scores?.length) {
    return (
      <span class="scores" title={run.headline}>
        {scores.slice(0, 2).map((each, at) => (
          <span key={each.label}>
            <Interval value={each.value} low={each.low} high={each.high} />
            <span class="trunc">
              <b>{percent(each.value, 0)}</b> <small>{names[at]?.replace(/PROCTOR_\w+=/, "")}</small>
            </span>
          </span>
        ))}
        {scores.length > 2 && <small>and {scores.length - 2} more</small>}
      </span>
    );
  }
  const said = stopped || (run.done ? run.headline : "") || "No trial has ended yet.";
  if (!score) return <span class="sct trunc dim" title={said}>{said}</span>;
  return (
    <span class="scw">
      <Interval value={score.value} low={score.low} high={score.high} />
      <span>
        <b>{percent(score.value)}</b>{" "}
        <small class="nw">
          {interval(score.low, score.high)}
          {run.done < run.total ? " so far" : ""}
        </small>
      </span>
    </span>
  );
}

function took(run: RunRow): number | null {
  if (!run.started_at) return null;
  const end = run.finished_at ?? (isLive(run) ? Date.now() / 1000 : null);
  return end ? end - run.started_at : null;
}

function Row({ run, current }: { run: RunRow; current: boolean }) {
  const on = marked.value.has(run.id);
  const verdict = run.gate?.verdict;
  return (
    <tr class={`rr ${on ? "sel" : ""} ${current ? "cur" : ""}`} aria-current={current || undefined}>
      <td class="ck">
        <input type="checkbox" checked={on} aria-label={`mark ${run.name}`} onChange={() => toggle(run)} />
      </td>
      <td class="s1">
        <StateMark run={run} />
      </td>
      <td class="nm">
        <a class="trunc top2" href={`/runs/${part(run.id)}`} title={`${run.name}, ${run.id}`}>
          {run.name}
        </a>
        <span class="sub trunc" title={[subjectOf(run), ...run.tags].join(", ")}>
          {subjectOf(run)}
          {run.tags.map((each) => (
            <span class="tag" key={each}>
              {each}
            </span>
          ))}
        </span>
      </td>
      <td class="pg">
        <span class="pgw">
          <Progress run={run} />
        </span>
      </td>
      <td class="sc">
        <ScoreCell run={run} />
      </td>
      <td class="gt">{verdict ? <Badge tone={VERDICTS[verdict] ?? ""}>{verdict}</Badge> : <small class="phone-off">–</small>}</td>
      <td class="co n">
        {run.unknown_cost > 0 && !run.cost_usd ? <span class="apart-t">unknown</span> : run.cost_usd ? `${run.unknown_cost ? "≥ " : ""}${dollars(run.cost_usd)}` : "–"}
      </td>
      <td class="tm n phone-off">{duration(took(run))}</td>
      <td class="wn n wide" title={exact(run.created_at)}>
        {when(run.created_at)}
      </td>
      <td class="sk wide">
        <Spark values={run.spark} />
      </td>
    </tr>
  );
}

function MarkedBar() {
  const runs = [...marked.value];
  if (!runs.length) return null;
  const ids = runs.map(([id]) => id);
  return (
    <div class="fixbar" role="region" aria-label="Marked runs">
      <span>
        <b>{runs.length}</b> marked
      </span>
      {ids.length === 2 && (
        <a class="btn main" href={`/compare?a=${part(ids[1] ?? "")}&b=${part(ids[0] ?? "")}`}>
          Compare <kbd>c</kbd>
        </a>
      )}
      <a class="btn" href={`/leaderboard?${ids.map((each) => `run=${part(each)}`).join("&")}`}>
        Leaderboard
      </a>
      <button type="button" class="btn quiet" onClick={() => (marked.value = new Map())}>
        Clear
      </button>
    </div>
  );
}

function lead(runs: RunRow[], total: number): ComponentChildren {
  const live = runs.filter((each) => each.status === "running");
  const waiting = runs.filter(needsYou);
  const parts: ComponentChildren[] = [];
  if (live.length) parts.push(`${live.length === 1 ? "One run is" : `${live.length} runs are`} live`);
  if (waiting[0]) parts.push(<>{waiting.length > 1 ? `${waiting.length} wait` : live.length ? "one waits" : "One waits"} for you: <a href={`/runs/${part(waiting[0].id)}`}>{waiting[0].name}</a> has {count(waiting[0].total - waiting[0].done)} trials to go</>);
  if (!parts.length) return <>{many(total, "run")}, none of them live.</>;
  return <>{parts.map((each, at) => <>{at ? ", " : ""}{each}</>)}.</>;
}

function Toolbar() {
  const now = query.value;
  const on = (value: string): boolean => (value ? value.split("=")[1] === now.get(value.split("=")[0] ?? "") : !now.get("status") && !now.get("kind"));
  return (
    <div class="toolbar">
      <Find label="Filter runs" placeholder="Filter: agent:oracle tag:nightly status:done" value={now.get("q") ?? ""} set={(q) => put({ q })} />
      <div class="seg scrollx" role="group" aria-label="Kind">
        {KINDS.map(([value, title]) => (
          <button
            type="button"
            key={title}
            aria-pressed={on(value)}
            onClick={() => {
              const [name, wanted] = value.split("=");
              put({ status: null, kind: null, ...(name ? { [name]: wanted } : {}) }, false);
            }}
          >
            {title}
          </button>
        ))}
      </div>
      <div class="end phone-off">
        <select aria-label="Order" value={now.get("sort") ?? ""} onChange={(event) => put({ sort: event.currentTarget.value }, false)}>
          {SORTS.map(([value, title]) => (
            <option key={value} value={value}>
              {title}
            </option>
          ))}
        </select>
      </div>
    </div>
  );
}

export function Runs() {
  const list = useList<RunRow>(address(), 100);
  const [fresh, tell] = useState(0);
  const [at, move] = useState(-1);
  useLive((changes) => {
    const ids = new Set(list.rows.map((each) => each.id));
    const made = new Set(changes.filter((each) => !ids.has(each.run) && /run\.(created|started|imported|queued)/.test(each.kind)).map((each) => each.run));
    // Rows that arrive wait behind a chip: nothing moves under the reader.
    if (made.size && list.rows.length) tell((before) => before + made.size);
    else list.refresh();
  }, 1000);
  const groups = useMemo(() => (query.value.get("sort") ? ([["", list.rows]] as [string, RunRow[]][]) : groupsOf(list.rows)), [list.rows, query.value.get("sort")]);
  const order = groups.flatMap((each) => each[1]);
  const here = order[at];
  useKeys({
    j: () => move(Math.min(order.length - 1, at + 1)),
    k: () => move(Math.max(0, at - 1)),
    Enter: () => here && go(`/runs/${part(here.id)}`),
    x: () => here && toggle(here),
    c: () => {
      const [a, b] = [...marked.value.keys()];
      if (a && b) go(`/compare?a=${part(b)}&b=${part(a)}`);
    },
    Escape: () => (marked.value = new Map()),
  });
  const filtered = [...query.value.keys()].length > 0;
  if (!list.loading && !list.problem && !list.rows.length && !filtered) return <FirstVisit />;
  return (
    <Page title="Runs">
      <div class="head">
        <div>
          <h1>Runs</h1>
          {list.rows.length > 0 && <p class="lead">{lead(list.rows, list.total)}</p>}
        </div>
      </div>
      <Toolbar />
      {list.problem && <Trouble problem={list.problem} retry={list.refresh} />}
      {fresh > 0 && (
        <p class="newrows">
          <button
            type="button"
            class="chip"
            aria-pressed="true"
            onClick={() => {
              tell(0);
              list.refresh();
            }}
          >
            {many(fresh, "new run")}
          </button>
        </p>
      )}
      {list.loading && !list.rows.length ? <Bones rows={8} /> : list.rows.length ? <RunTable groups={groups} here={here?.id} /> : !list.problem && <Empty title="No run matches this filter." />}
      {list.rows.length < list.total && (
        <p class="newrows">
          <button type="button" class="btn" onClick={list.more}>
            Show more of {count(list.total)}
          </button>
        </p>
      )}
      <MarkedBar />
    </Page>
  );
}

function RunTable({ groups, here }: { groups: [string, RunRow[]][]; here: string | undefined }) {
  return (
    <table class="runs stick">
      <thead>
        <tr>
          <th class="ck">
            <span class="vh">mark</span>
          </th>
          <th class="s1">
            <span class="vh">state</span>
          </th>
          <th>run</th>
          <th>progress</th>
          <th>result, 95 % interval</th>
          <th>gate</th>
          <th class="n">cost</th>
          <th class="n">time</th>
          <th class="n wide">created</th>
          <th class="wide">last 20</th>
        </tr>
      </thead>
      {groups.map(([name, runs]) => (
        <tbody key={name}>
          {name && (
            <tr class="grp">
              <th colSpan={10} scope="rowgroup">
                {name} <span class="count">{runs.length}</span>
              </th>
            </tr>
          )}
          {runs.map((run) => (
            <Row key={run.id} run={run} current={run.id === here} />
          ))}
        </tbody>
      ))}
    </table>
  );
}
