// What a run has cost, by task, agent and model; what has no price is said, never counted as nothing.
import { useResource } from "../api";
import { apart, count, dollars, duration, tokens, words } from "../format";
import { Bones, Empty, Trouble } from "../parts/controls";
import { Meter } from "../parts/marks";
import { part } from "../router";
import type { RunDetail } from "../types";

export interface CostLine {
  name: string;
  run?: string;
  cost_usd: number | null;
  unknown_cost?: number;
  calls?: number;
  requests?: number;
  trials?: number;
  passed?: number;
  tokens?: number;
  prompt_tokens?: number;
  cached_tokens?: number;
  completion_tokens?: number;
  wait_s?: number;
}

export type CostTable = Record<string, unknown>;

export const linesOf = (found: unknown): CostLine[] => (Array.isArray(found) ? (found as CostLine[]) : []);

export function Costs({ run }: { run: RunDetail }) {
  const costs = useResource<CostTable>(`/api/runs/${part(run.id)}/costs`);
  if (!costs.data) return costs.problem ? <Trouble problem={costs.problem} retry={costs.refresh} /> : <Bones />;
  const by = (costs.data.by ?? costs.data) as Record<string, unknown>;
  const groups = (["task", "agent", "model"] as const)
    .map((name) => [name, linesOf(by[name] ?? by[`${name}s`] ?? by[`by_${name}`])] as const)
    .filter(([, lines]) => lines.length);
  const { passed } = run;
  if (!groups.some(([, lines]) => lines.some((each) => (each.calls ?? each.requests ?? 0) > 0 || each.cost_usd)) && !run.cost_usd) {
    return <Empty title="No model was called.">Agents such as the oracle need none, and a replay asks none.</Empty>;
  }
  return (
    <section class="tabbody">
      <p class="lead">
        {run.unknown_cost ? "At least " : ""}
        {dollars(run.cost_usd ?? 0)}
        {run.done < run.total ? " so far" : ""}
        {passed > 0 && run.cost_usd ? (
          <>
            , <b>{dollars(run.cost_usd / passed)} per passed trial</b>
          </>
        ) : null}
        .
      </p>
      {run.unknown_cost > 0 && (
        <div class="notice">
          <h2>Before you quote these numbers</h2>
          <p>{count(run.unknown_cost)} calls went to a model without a known price. They are left out of every sum and never counted as $0.</p>
        </div>
      )}
      <div class="cols">
        {[groups.slice(0, 1), groups.slice(1)].map((side, at) => (
          <div key={at}>
            {side.map(([name, lines]) => (
              <CostSection key={name} title={name === "task" ? "Dearest tasks" : `By ${name}`} name={name} lines={lines} />
            ))}
          </div>
        ))}
      </div>
      <p class="cap">{costs.data.counted_by === "agents" ? "Counted by the agents themselves: no call went through Proctor’s gateway." : "Metered by the gateway at list prices. Your invoice may differ by discounts."}</p>
    </section>
  );
}

export function CostSection({ title, name, lines, most = 25 }: { title: string; name: string; lines: CostLine[]; most?: number }) {
  const sorted = [...lines].sort((a, b) => (b.cost_usd ?? -1) - (a.cost_usd ?? -1));
  const top = Math.max(0, ...sorted.map((each) => each.cost_usd ?? 0));
  const names = apart(sorted.map((each) => each.name));
  const waits = sorted.some((each) => each.wait_s);
  return (
    <section>
      <h2>{title}</h2>
      <table class="ctab">
        <thead>
          <tr>
            <th>{words(name)}</th>
            <th class="cm">
              <span class="vh">share</span>
            </th>
            <th class="n mid-up">calls</th>
            <th class="n">tokens</th>
            {waits && <th class="n mid-up">waited</th>}
            <th class="n">cost</th>
          </tr>
        </thead>
        <tbody>
          {sorted.slice(0, most).map((each, at) => {
            const unknown = each.cost_usd === null || ((each.unknown_cost ?? 0) > 0 && !each.cost_usd);
            return (
              <tr key={each.run ?? each.name} class={unknown ? "unk" : ""}>
                <td class="nm2">
                  {each.run ? (
                    <a class="trunc" href={`/runs/${part(each.run)}/cost`} title={`${each.name}, ${each.run}`}>
                      {names[at]}
                    </a>
                  ) : (
                    <span class="trunc" title={each.name}>
                      {names[at] || "–"}
                    </span>
                  )}
                </td>
                <td>{unknown ? <span class="unkb" /> : <Meter part={each.cost_usd ?? 0} whole={top} label={dollars(each.cost_usd)} />}</td>
                <td class="n mid-up">{count(each.calls ?? each.requests)}</td>
                <td class="n">{tokens(each.tokens ?? (each.prompt_tokens ?? 0) + (each.completion_tokens ?? 0))}</td>
                {waits && <td class="n mid-up">{duration(each.wait_s)}</td>}
                <td class="n">{unknown ? "unknown" : `${each.unknown_cost ? "≥ " : ""}${dollars(each.cost_usd)}`}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {lines.length > most && <p class="cap">And {lines.length - most} more.</p>}
    </section>
  );
}
