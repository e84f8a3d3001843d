// All trials of a run, filtered and sorted on the server, in a window of about sixty rows.
import { useState } from "preact/hooks";
import { count, dollars, duration, known, many, reward, tokens } from "../format";
import { useKeys } from "../keys";
import { useLive } from "../live";
import { isApart, nameOf, ORDER } from "../outcomes";
import { Bones, Empty, Find, Trouble } from "../parts/controls";
import { Badge, Sign } from "../parts/marks";
import { SortHead, useList, useNarrow, WindowBody } from "../parts/window";
import { go, part, put, query } from "../router";
import type { RunDetail, TrialRow } from "../types";

const NAMES = ["state", "outcome", "blame", "task", "agent", "model", "q", "sort"];

export function TrialsTab({ run }: { run: RunDetail }) {
  const wanted = new URLSearchParams();
  for (const name of NAMES) {
    const value = query.value.get(name);
    if (value) wanted.set(name, value);
  }
  const text = wanted.toString();
  const list = useList<TrialRow>(`/api/runs/${part(run.id)}/trials${text ? `?${text}` : ""}`);
  const [at, move] = useState(-1);
  useLive((changes) => {
    if (changes.some((each) => each.run === run.id)) list.refresh();
  }, 1500);
  const here = list.rows[at];
  useKeys({
    j: () => move(Math.min(list.rows.length - 1, at + 1)),
    k: () => move(Math.max(0, at - 1)),
    Enter: () => here && go(`/trials/${part(run.id)}/${here.index}`),
  });
  const filtered = [...wanted.keys()].some((each) => each !== "sort");
  return (
    <section class="tabbody">
      <Toolbar run={run} list={list} filtered={filtered} />
      {list.problem && <Trouble problem={list.problem} retry={list.refresh} />}
      {list.loading && !list.rows.length ? <Bones rows={10} /> : !list.rows.length ? <Empty title={filtered ? "No trial matches this filter." : "This run has no trials."} /> : <TrialTable run={run} rows={list.rows} matched={list.matched} more={list.more} here={at} />}
    </section>
  );
}

function Toolbar({ run, list, filtered }: { run: RunDetail; list: { rows: TrialRow[]; total: number; matched: number }; filtered: boolean }) {
  const now = query.value;
  const outcome = now.get("outcome");
  const found = ORDER.filter((each) => run.counts[each]);
  return (
    <div class="toolbar">
      <Find label="Filter trials" placeholder="Filter: name or message" value={now.get("q") ?? ""} set={(q) => put({ q })} />
      {found.map((each) => (
        <button type="button" key={each} class="chip" aria-pressed={outcome === each} onClick={() => put({ outcome: outcome === each ? null : each }, false)}>
          {nameOf(each)} <b>{count(run.counts[each])}</b>
        </button>
      ))}
      {["task", "agent", "model", "state", "blame"].map((name) => {
        const value = now.get(name);
        return value ? (
          <button type="button" key={name} class="chip" aria-pressed="true" onClick={() => put({ [name]: null }, false)} aria-label={`Remove the filter ${name}: ${value}`}>
            {name}: {value} <i class="g g-cross" aria-hidden="true" />
          </button>
        ) : null;
      })}
      <span class="end phone-off">
        <small>
          {many(run.total, "trial")}
          {filtered ? `, ${count(list.matched)} match` : ""}
        </small>
      </span>
    </div>
  );
}

function TrialTable({ run, rows, matched, more, here }: { run: RunDetail; rows: TrialRow[]; matched: number; more: () => void; here: number }) {
  const sort = query.value.get("sort") ?? "";
  const set = (next: string): void => put({ sort: next }, false);
  const tasks = run.kind !== "experiment";
  const several = run.agents.length > 1 || run.models.length > 1;
  const columns = 8 + (several ? 1 : 0);
  const narrow = useNarrow();
  const who = (trial: TrialRow): string => [trial.agent, trial.model].filter(Boolean).join(" × ");
  const below = (trial: TrialRow): string => [known(trial.rollout) ? `#${trial.rollout + 1}` : "", run.agents.length > 1 ? trial.agent : "", run.models.length > 1 ? trial.model : ""].filter(Boolean).join(" · ");
  return (
    <div>
      <table class="stick trials" role="grid" aria-rowcount={matched + 1} aria-label="Trials">
        <thead>
          <tr>
            <th class="s1">
              <span class="vh">outcome</span>
            </th>
            <SortHead name="task" sort={sort} set={set}>
              {tasks ? "task" : "point"}
            </SortHead>
            {several && <th class="phone-off">agent</th>}
            {tasks && <th class="n phone-off">rollout</th>}
            <th class="phone-off">outcome</th>
            {tasks && (
              <SortHead name="reward" sort={sort} set={set} css="n phone-off">
                reward
              </SortHead>
            )}
            <SortHead name="took" sort={sort} set={set} css="n">
              time
            </SortHead>
            {tasks && <th class="n">cost</th>}
            {tasks && <th class="n mid-up">tokens</th>}
            <th class="n wide">attempts</th>
          </tr>
        </thead>
        <WindowBody
          rows={rows}
          height={tasks && narrow ? 50 : 34}
          columns={columns}
          end={more}
          render={(trial, at) => (
            <tr key={trial.index} aria-rowindex={at + 2} class={at === here ? "cur" : ""}>
              <td class="s1">
                <Sign outcome={trial.outcome} state={trial.state} reward={trial.reward} />
              </td>
              <td class="nm2">
                <a class="trunc" href={`/trials/${part(run.id)}/${trial.index}`} title={trial.message ? `${trial.label}: ${trial.message}` : trial.label}>
                  {tasks ? trial.task : trial.label}
                </a>
                {tasks && <span class="sub trunc phone-only">{below(trial)}</span>}
              </td>
              {several && <td class="phone-off nw dim">{who(trial)}</td>}
              {tasks && <td class="n phone-off">{known(trial.rollout) ? trial.rollout + 1 : "–"}</td>}
              <td class={`phone-off nw ${isApart(trial.outcome) ? "apart-t" : ""}`}>
                {nameOf(trial.outcome, trial.state)} {trial.suspect && <Badge tone="warn">suspect</Badge>}
              </td>
              {tasks && <td class="n phone-off">{reward(trial.reward)}</td>}
              <td class="n">{duration(trial.took_s)}</td>
              {tasks && <td class="n">{trial.cost_usd ? dollars(trial.cost_usd) : "–"}</td>}
              {tasks && <td class="n mid-up">{trial.tokens ? tokens(trial.tokens) : "–"}</td>}
              <td class="n wide">{trial.attempts}</td>
            </tr>
          )}
        />
      </table>
    </div>
  );
}
