// Evidence beside the transcript: tests, changed files, the other rollouts, cost.
import { useResource, type Listed } from "../api";
import { dollars, duration, many, tokens } from "../format";
import { Sign } from "../parts/marks";
import { parseDiff } from "../parts/terminal";
import { part } from "../router";
import type { TrialRow } from "../types";
import type { Step } from "./steps";
import type { Attempt, TrialDetail } from "./types";
import { testsOf, type VerifierData } from "./verifier";

export function Evidence({ detail, attempt, steps }: { detail: TrialDetail; attempt: Attempt | undefined; steps: Step[] }) {
  return (
    <aside class="evid" aria-label="Evidence">
      <Tests detail={detail} attempt={attempt} />
      <Changed detail={detail} attempt={attempt} />
      <Siblings detail={detail} />
      <Cost detail={detail} attempt={attempt} steps={steps} />
    </aside>
  );
}

const baseOf = (detail: TrialDetail): string => `/api/trials/${part(detail.run.id)}/${detail.trial.index}`;
const linkOf = (detail: TrialDetail): string => `/trials/${part(detail.run.id)}/${detail.trial.index}`;

function Tests({ detail, attempt }: { detail: TrialDetail; attempt: Attempt | undefined }) {
  const found = useResource<VerifierData>(attempt ? `${baseOf(detail)}/verifier?attempt=${attempt.number}` : "");
  const tests = testsOf(found.data);
  if (!tests.length) return null;
  const passed = tests.filter((each) => each.status === "passed").length;
  const order = [...tests].sort((a, b) => Number(a.status === "passed") - Number(b.status === "passed"));
  return (
    <div class="box">
      <header>
        <h3>Tests</h3>
        <small>
          {passed} of {tests.length} passed
        </small>
      </header>
      <ul class="tests">
        {order.slice(0, 12).map((each) => (
          <li key={each.name}>
            <a href={`${linkOf(detail)}/verifier`}>
              <Sign outcome={each.status === "passed" ? "passed" : each.status === "failed" ? "failed" : "skipped"} />
              <span class="trunc">{each.name}</span>
              <small>{each.seconds === null ? "" : duration(each.seconds)}</small>
            </a>
            {each.message && <p>{each.message.split("\n")[0]?.slice(0, 160)}</p>}
          </li>
        ))}
      </ul>
    </div>
  );
}

function Changed({ detail, attempt }: { detail: TrialDetail; attempt: Attempt | undefined }) {
  const has = attempt?.artifacts.some((each) => /diff\.patch$/.test(each.name));
  const diff = useResource<string | { diff: string }>(has ? `${baseOf(detail)}/diff?attempt=${attempt?.number}` : "");
  const text = typeof diff.data === "string" ? diff.data : (diff.data?.diff ?? "");
  const files = parseDiff(text);
  if (!files.length) return null;
  return (
    <div class="box">
      <header>
        <h3>Changed files</h3>
        <span class="end">
          <a class="btn quiet sm" href={`${linkOf(detail)}/files`}>
            Diff
          </a>
        </span>
      </header>
      <ul class="files">
        {files.slice(0, 12).map((each) => (
          <li key={each.path}>
            <a class="trunc mono" href={`${linkOf(detail)}/files#f-${each.path}`} title={each.path}>
              {each.path}
            </a>
            <small class="nw">
              {each.added > 0 && <span class="good-t">+{each.added}</span>} {each.removed > 0 && <span class="bad-t">−{each.removed}</span>}
            </small>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Cost({ detail, attempt, steps }: { detail: TrialDetail; attempt: Attempt | undefined; steps: Step[] }) {
  const use = (attempt?.usage ?? {}) as Record<string, number | undefined>;
  if (!use.requests && !use.prompt_tokens) return null;
  const dearest = steps.reduce<Step | undefined>((best, each) => ((each.cost ?? 0) > (best?.cost ?? 0) ? each : best), undefined);
  const cached = use.prompt_tokens && use.cached_tokens ? `, ${Math.round((100 * use.cached_tokens) / use.prompt_tokens)} % cached` : "";
  return (
    <div class="box">
      <header>
        <h3>Cost</h3>
        <span class="end">
          <b>{use.cost_usd === undefined || use.cost_usd === null ? "unknown" : dollars(use.cost_usd)}</b>
        </span>
      </header>
      <div class="in">
        <dl class="kv">
          <dt>input</dt>
          <dd>
            {tokens(use.prompt_tokens)} tokens{cached}
          </dd>
          <dt>output</dt>
          <dd>{tokens(use.completion_tokens)} tokens</dd>
          <dt>calls</dt>
          <dd>
            {many(use.requests ?? 0, "call")}
            {use.waited_s ? `, waited ${duration(use.waited_s)}` : ""}
          </dd>
          {dearest?.cost ? (
            <>
              <dt>dearest step</dt>
              <dd>
                <a href={`#s${dearest.number}`}>{dearest.number}</a>: {dollars(dearest.cost)}
              </dd>
            </>
          ) : null}
          {detail.attempts.length > 1 && (
            <>
              <dt>attempt</dt>
              <dd>
                {attempt?.number} of {detail.attempts.length}
              </dd>
            </>
          )}
        </dl>
      </div>
    </div>
  );
}

const Siblings = ({ detail }: { detail: TrialDetail }) => {
  const { trial, run } = detail;
  const address = `/api/runs/${part(run.id)}/trials?task=${part(trial.task)}${trial.agent ? `&agent=${part(trial.agent)}` : ""}${trial.model ? `&model=${part(trial.model)}` : ""}&limit=20`;
  const found = useResource<Listed<TrialRow>>(trial.rollout === null ? "" : address);
  const items = found.data?.items ?? [];
  if (items.length < 2) return null;
  return (
    <div class="box sibbox">
      <header>
        <h3>Other rollouts of this task</h3>
      </header>
      <ul class="sib">
        {items.map((each) => (
          <li key={each.index} class={each.index === trial.index ? "on" : ""}>
            <a href={`/trials/${part(run.id)}/${each.index}`}>
              <Sign outcome={each.outcome} state={each.state} reward={each.reward} />
              <span>#{(each.rollout ?? 0) + 1}</span>
              <small>
                {duration(each.took_s)}
                {each.cost_usd ? ` · ${dollars(each.cost_usd)}` : ""}
              </small>
            </a>
            {each.index !== trial.index && each.outcome && (
              <a class="beside" href={`/pair?a=${part(run.id)}/${trial.index}&b=${part(run.id)}/${each.index}`} title={`#${(trial.rollout ?? 0) + 1} and #${(each.rollout ?? 0) + 1} side by side`}>
                side by side
              </a>
            )}
          </li>
        ))}
      </ul>
    </div>
  );
};
