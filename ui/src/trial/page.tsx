// One trial: a sentence, where the time went, and a tab for each kind of evidence.
import { useMemo } from "preact/hooks";
import { send, useResource } from "../api";
import { capital, dollars, duration, exact, known, prose } from "../format";
import { useKeys } from "../keys";
import { useLive } from "../live";
import { Bones, copy, Copy, Tabs, toast, Trouble } from "../parts/controls";
import { Badge, Glyph, OutcomeBadge } from "../parts/marks";
import { Said } from "../parts/terminal";
import { go, part, put, query } from "../router";
import { mayWrite, Page } from "../shell";
import { Files } from "./files";
import { Logs } from "./logs";
import { Notes } from "./notes";
import { Resources } from "./resources";
import { expectTranscript, Transcript, useTranscript } from "./transcript";
import type { Attempt, TrialDetail } from "./types";
import { Values } from "./values";
import { Verifier } from "./verifier";

const usd = (attempt: Attempt | undefined): number | null => {
  const found = attempt?.usage?.cost_usd;
  return typeof found === "number" ? found : null;
};

export function TrialPage({ run, index, tab }: { run: string; index: string; tab?: string }) {
  useMemo(() => {
    if (!tab || tab === "transcript") expectTranscript(run, index, Number(query.value.get("attempt")) || 0);
  }, [run, index]);
  const trial = useResource<TrialDetail>(`/api/trials/${part(run)}/${part(index)}`);
  useLive((changes) => {
    if (!changes.length || changes.some((each) => each.run === trial.data?.run.id && (each.index === null || each.index === trial.data?.trial.index))) trial.refresh();
  });
  if (!trial.data) {
    return <Page title="Trial">{trial.problem ? <Trouble problem={trial.problem} retry={trial.refresh} head /> : <Bones />}</Page>;
  }
  return <Loaded key={`${trial.data.run.id}/${trial.data.trial.index}`} detail={trial.data} tab={tab} refresh={trial.refresh} />;
}

function Loaded({ detail, tab, refresh }: { detail: TrialDetail; tab: string | undefined; refresh: () => void }) {
  const { trial, attempts, run } = detail;
  const wanted = Number(query.value.get("attempt")) || 0;
  const attempt = attempts.find((each) => each.number === wanted) ?? attempts.find((each) => each.counts) ?? attempts[attempts.length - 1];
  const base = `/trials/${part(run.id)}/${trial.index}`;
  const kept = wanted ? `?attempt=${wanted}` : "";
  const steps = useTranscript(detail, wanted);
  const experiment = trial.agent === null;
  const now = tab ?? (experiment ? "values" : steps.total === 0 && !steps.loading ? (attempt ? "verifier" : "logs") : "transcript");
  const step = (index: number | null): void => {
    if (index !== null) go(`/trials/${part(run.id)}/${index}${tab ? `/${tab}` : ""}`);
  };
  useKeys({
    "[": () => step(detail.previous),
    "]": () => step(detail.next),
    y: () => void copy(location.href).then(() => toast("Link copied")),
    ...(now === "transcript" ? {} : { e: () => step(detail.next_failure) }),
  });
  const title = experiment || trial.rollout === null ? trial.label : `${trial.task} #${trial.rollout + 1}`;
  const tabs: [string, string, string | number | undefined][] = [
    ...((experiment
      ? [["values", "Values", undefined]]
      : [
          ["transcript", "Transcript", steps.total || undefined],
          ["verifier", "Verifier", undefined],
        ]) as [string, string, number | undefined][]),
    ["files", "Files", attempt?.artifacts.length || undefined],
    ["resources", "Resources", undefined],
    ["logs", "Logs", undefined],
    ["notes", "Notes", detail.comments.length + detail.labels.length || undefined],
  ];
  return (
    <Page title={title}>
      <Head detail={detail} attempt={attempt} steps={steps.total} step={step} />
      {detail.live && <Phases detail={detail} />}
      <Attempts detail={detail} shown={attempt} />
      <Tabs label="Parts of the trial" tabs={tabs.map(([name, shown, count]) => ({ href: `${base}/${name}${kept}`, title: shown, count, on: now === name }))} />
      {now === "transcript" && <Transcript detail={detail} attempt={attempt} transcript={steps} />}
      {now === "values" && <Values detail={detail} attempt={attempt} />}
      {now === "verifier" && <Verifier detail={detail} attempt={attempt} />}
      {now === "files" && <Files detail={detail} attempt={attempt} />}
      {now === "resources" && <Resources detail={detail} attempt={attempt} />}
      {now === "logs" && <Logs detail={detail} attempt={attempt} />}
      {now === "notes" && <Notes detail={detail} refresh={refresh} />}
    </Page>
  );
}

function Head({ detail, attempt, steps, step }: { detail: TrialDetail; attempt: Attempt | undefined; steps: number; step: (index: number | null) => void }) {
  const { trial, run } = detail;
  const experiment = trial.agent === null;
  const cost = usd(attempt) ?? trial.cost_usd;
  const facts = [
    [trial.agent, trial.model].filter(Boolean).join(" × "),
    steps ? `${steps} steps` : "",
    known(trial.took_s) ? duration(trial.took_s) : "",
    cost ? dollars(cost) : "",
    attempt?.worker ? `worker ${attempt.worker.split(":")[0]}` : "",
  ].filter(Boolean);
  return (
    <div class="head">
      <p class="kicker">
        <a href="/runs">Runs</a> / <a href={`/runs/${part(run.id)}`}>{run.name}</a> / <a href={`/runs/${part(run.id)}/trials?task=${part(trial.task)}`}>{trial.task}</a>
        {trial.agent !== null && trial.rollout !== null && <> / rollout {trial.rollout + 1}</>}
      </p>
      <div>
        <h1>
          {!experiment && trial.rollout !== null ? (
            <>
              {trial.task} <span class="h1n">#{trial.rollout + 1}</span>
            </>
          ) : (
            trial.task
          )}{" "}
          <OutcomeBadge outcome={trial.outcome} state={trial.state} reward={trial.reward} /> {trial.suspect && <Badge tone="warn">suspect</Badge>}
        </h1>
        {detail.sentence && (
          <p class="lead">
            <Said text={prose(/^[a-z]+[ ,]/.test(detail.sentence) ? capital(detail.sentence) : detail.sentence)} />{" "}
            {trial.outcome === "failed" && !experiment && <a href={`/trials/${part(run.id)}/${trial.index}/verifier`}>What the tests say</a>}
          </p>
        )}
        <p class="meta" title={exact(trial.started_at)}>
          {facts.join(" · ")} · key <code>{trial.key.slice(0, 8)}</code>
          {detail.labels.map((each) => (
            <span class="tag" key={each}>
              {each}
            </span>
          ))}
        </p>
      </div>
      <div class="acts">
        <span class="seg">
          <button type="button" disabled={detail.previous === null} onClick={() => step(detail.previous)} aria-label="Previous trial" title="Previous trial">
            <Glyph name="left" /> <kbd>[</kbd>
          </button>
          <button type="button" disabled={detail.next === null} onClick={() => step(detail.next)} aria-label="Next trial" title="Next trial">
            <Glyph name="right" /> <kbd>]</kbd>
          </button>
        </span>
        {detail.next_failure !== null && (
          <button type="button" class="btn phone-off" onClick={() => step(detail.next_failure)}>
            Next failure
          </button>
        )}
        <Copy text={() => location.href} label="Copy link" small={false} link />
      </div>
    </div>
  );
}

/** Attempts that are not the shown one stay in reach, and say why they do not count. */
function Attempts({ detail, shown }: { detail: TrialDetail; shown: Attempt | undefined }) {
  if (detail.attempts.length < 2) return null;
  return (
    <div class="toolbar">
      <span class="seg scrollx" role="group" aria-label="Attempt">
        {detail.attempts.map((each) => (
          <button type="button" key={each.number} aria-pressed={each === shown} onClick={() => put({ attempt: String(each.number) }, false)}>
            Attempt {each.number} <small>{(each.outcome ?? "running").replaceAll("_", " ")}</small>
          </button>
        ))}
      </span>
      {shown && !shown.counts && <Badge tone="apart">kept, not counted</Badge>}
    </div>
  );
}

const ORDER: [string, string[]][] = [
  ["image", ["image", "queue", "pull", "build"]],
  ["start", ["start", "setup"]],
  ["agent", ["agent", "execute"]],
  ["verify", ["verify", "collect", "stop"]],
];

function Phases({ detail }: { detail: TrialDetail }) {
  const now = ORDER.findIndex(([, names]) => names.includes(detail.live?.phase ?? ""));
  return (
    <ol class="phs" aria-label="Phases of the trial">
      {ORDER.map(([name], at) => (
        <li key={name} class={at < now ? "done" : at === now ? "now" : "next"}>
          {at < now ? <Glyph name="check" /> : at === now ? <i class="spin" aria-hidden="true" /> : <i class="o" aria-hidden="true" />}
          <b>{name}</b>
          <small>{at === now ? (detail.live?.phase === name ? "now" : detail.live?.phase) : at < now ? "done" : "to come"}</small>
        </li>
      ))}
    </ol>
  );
}

export const setLabels = (detail: TrialDetail, labels: string[]): Promise<unknown> =>
  mayWrite() ? send("PUT", `/api/trials/${part(detail.run.id)}/${detail.trial.index}/labels`, { labels }) : Promise.resolve();
