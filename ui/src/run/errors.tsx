// What went wrong that was not the agent's doing, and failures, grouped by their cause.
import { send, useResource } from "../api";
import { count, many } from "../format";
import { blameOf, isApart, look, nameOf } from "../outcomes";
import { Act, Bones, Empty, Trouble } from "../parts/controls";
import { Badge } from "../parts/marks";
import { Said } from "../parts/terminal";
import { part, put, query } from "../router";
import { mayWrite } from "../shell";
import type { RunDetail } from "../types";

interface Group {
  signature: string;
  outcome: string;
  blame: string;
  phase: string | null;
  type: string | null;
  message: string;
  count: number;
  tasks: string[];
  first: number;
  indices: number[];
}

export function Errors({ run, refresh }: { run: RunDetail; refresh: () => void }) {
  const errors = useResource<{ groups: Group[] }>(`/api/runs/${part(run.id)}/errors`);
  if (!errors.data) return errors.problem ? <Trouble problem={errors.problem} retry={errors.refresh} /> : <Bones />;
  const { groups } = errors.data;
  if (!groups.length) return run.done ? <Empty title="Nothing went wrong.">Failures of the agent are under Trials.</Empty> : <Empty title="Nothing has ended yet." />;
  const apart = run.errors;
  const blames = [...new Set(groups.map((each) => each.blame))];
  const chosen = query.value.get("blame");
  const shown = groups.filter((each) => !chosen || each.blame === chosen);
  const total = (blame?: string): number => groups.filter((each) => !blame || each.blame === blame).reduce((sum, each) => sum + each.count, 0);
  return (
    <section class="tabbody">
      <p class="lead">
        {apart ? (
          <>
            {many(apart, "trial")} ended for reasons that are not the agent’s. They are <b>not in the score</b>.
          </>
        ) : (
          `Every trial that ended is in the score. ${blames.every((each) => each === "person") ? "What was cancelled" : "What stopped agents"} is below.`
        )}
      </p>
      <div class="toolbar">
        <button type="button" class="chip" aria-pressed={!chosen} onClick={() => put({ blame: null })}>
          All <b>{count(total())}</b>
        </button>
        {blames.map((each) => (
          <button type="button" key={each} class="chip" aria-pressed={chosen === each} onClick={() => put({ blame: each })}>
            {each} <b>{count(total(each))}</b>
          </button>
        ))}
        {mayWrite() && run.errors_to_retry > 0 && (
          <span class="end">
            <Act act={() => send("POST", `/api/runs/${part(run.id)}/resume`, { errors: true })} then={refresh} glyph="retry">
              Try {count(run.errors_to_retry)} again
            </Act>
          </span>
        )}
      </div>
      <h2 class="vh">Causes</h2>
      <div class="egs">
        {shown.map((each) => (
          <Cause key={each.signature} group={each} run={run} />
        ))}
      </div>
    </section>
  );
}

function Cause({ group, run }: { group: Group; run: RunDetail }) {
  const { css, letter } = look(group.outcome);
  const title = group.message.split("\n")[0] || group.type || nameOf(group.outcome);
  const rest = group.message.includes("\n") ? group.message : "";
  return (
    <article class="box eg">
      <header>
        <i class={`c ${css}`} data-l={letter} aria-hidden="true" />
        <h3>
          <Said text={title} />
        </h3>
        {title !== nameOf(group.outcome) && <Badge tone={isApart(group.outcome) ? "apart" : ""}>{nameOf(group.outcome)}</Badge>}
        <small>
          {many(group.count, "trial")} · blame: {group.blame || blameOf(group.outcome)}
        </small>
        <span class="end">
          <a class="btn sm" href={`/trials/${part(run.id)}/${group.first}`}>
            Open the first
          </a>
        </span>
      </header>
      <div class="in">
        {(group.phase || group.type) && (
          <p class="dim">
            {group.phase && <>during {group.phase}</>} {group.type && <code>{group.type}</code>}
          </p>
        )}
        {rest && <pre class="code">{rest}</pre>}
        <p class="hint">
          {group.tasks.slice(0, 12).join(", ")}
          {group.tasks.length > 12 ? ` and ${group.tasks.length - 12} more` : ""}. {group.count === 1 ? "Trial" : "Trials"}
          {group.indices.slice(0, 20).map((index) => (
            <>
              {" "}
              <a class="num" href={`/trials/${part(run.id)}/${index}`}>
                {index}
              </a>
            </>
          ))}
          {group.count > 20 ? ` and ${group.count - 20} more` : ""}
        </p>
      </div>
    </article>
  );
}
