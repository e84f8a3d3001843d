// One run: its head and summary, and a tab for each way to look at it.
import { send, useResource } from "../api";
import { about, count, dollars, duration, exact, many, prose, when, words } from "../format";
import { useLive } from "../live";
import { Act, Bones, confirm, Empty, Tabs, Trouble } from "../parts/controls";
import { Badge } from "../parts/marks";
import { Spoken } from "../parts/spoken";
import { Said } from "../parts/terminal";
import { DocumentHead, DocumentView, Sections, Warnings } from "../document/view";
import type { DocumentData } from "../document/types";
import { go, part } from "../router";
import { mayWrite, Page } from "../shell";
import type { RunDetail } from "../types";
import { RaiseBudget } from "./budget";
import { Costs } from "./costs";
import { Errors } from "./errors";
import { MatrixTab } from "./matrix";
import { SpecTab } from "./spec";
import { Summary } from "./summary";
import { TrialsTab } from "./trials";

const PERFORMANCE = ["latency", "resources", "phases"];
const ELSEWHERE = [...PERFORMANCE, "environment", "reproduce", "usage", "matrix"];
export const isOpen = (run: { status: string }): boolean => !["done", "cancelled", "finished", "failed"].includes(run.status);
export const isRunning = (run: { status: string }): boolean => ["running", "pending", "queued"].includes(run.status);

export function RunPage({ run: id, tab }: { run: string; tab?: string }) {
  const run = useResource<RunDetail>(`/api/runs/${part(id)}`);
  useLive((changes) => {
    if (!changes.length || changes.some((each) => each.run === run.data?.id)) run.refresh();
  });
  if (!run.data) {
    return (
      <Page title="Run">
        {run.problem ? <Trouble problem={run.problem} retry={run.refresh} head /> : <Bones />}
      </Page>
    );
  }
  return <Loaded run={run.data} tab={tab} refresh={run.refresh} set={run.set} />;
}

interface Shown {
  run: RunDetail;
  tab: string | undefined;
  refresh: () => void;
  set: (run: RunDetail) => void;
}

function Loaded({ run, tab, refresh, set }: Shown) {
  const tasks = run.kind !== "experiment";
  const judged = verdictOf(run);
  const now = tab ?? (tasks && isOpen(run) ? "matrix" : judged && judged !== "Gate" ? "verdict" : "results");
  const { errors } = run;
  const base = `/runs/${part(run.id)}`;
  const names: [string, string, number | undefined][] = [
    ...(judged ? ([["verdict", judged, undefined]] as [string, string, undefined][]) : []),
    ["results", "Results", undefined],
    ...(tasks ? ([["matrix", "Matrix", undefined]] as [string, string, undefined][]) : []),
    ["trials", "Trials", run.total],
    ["errors", "Errors", errors],
    ["performance", "Performance", undefined],
    ...(tasks ? ([["cost", "Cost", undefined]] as [string, string, undefined][]) : []),
    ["spec", "Spec", undefined],
  ];
  return (
    <Page title={run.name}>
      <Head run={run} refresh={refresh} set={set} quiet={now === "verdict"} />
      {isOpen(run) && <Spoken text={`${run.name}: ${count(run.done)} of ${count(run.total)} trials have ended, ${count(run.running)} run.`} />}
      <Stopped run={run} />
      <Warnings warnings={run.warnings} />
      {tasks && (isOpen(run) || now === "matrix") && <Summary run={run} />}
      <Tabs label="Parts of the run" tabs={names.map(([name, title, number]) => ({ href: `${base}/${name}`, title, count: number ? count(number) : undefined, on: now === name }))} />
      {now === "verdict" && <VerdictTab run={run} />}
      {now === "results" && <DocumentTab run={run} skip={ELSEWHERE} />}
      {now === "performance" && <DocumentTab run={run} only={PERFORMANCE} empty="No times were recorded." />}
      {now === "matrix" && <MatrixTab run={run} />}
      {now === "trials" && <TrialsTab run={run} />}
      {now === "errors" && <Errors run={run} refresh={refresh} />}
      {now === "cost" && <Costs run={run} />}
      {now === "spec" && <SpecTab run={run} set={set} />}
    </Page>
  );
}

/** Why a run did not come to its end. */
function Stopped({ run }: { run: RunDetail }) {
  if (!run.failure || isRunning(run)) return null;
  return (
    <div class="notice bad">
      <h2>The run stopped</h2>
      <p>
        <Said text={`${run.failure.charAt(0).toUpperCase()}${run.failure.slice(1).replace(/\.?$/, ".")}`} />
      </p>
    </div>
  );
}

const JUDGED: Record<string, string> = { vet: "Certificates", race: "Race", perf: "Harness" };

/** Vettings, races and harnesses have no spec of their own that could be submitted. */
export const mayRepeat = (run: RunDetail): boolean => !JUDGED[run.execution ?? ""];

/** What the run was made to decide, if anything. */
function verdictOf(run: RunDetail): string {
  const gates = (run.resolved as { gates?: unknown[] } | null)?.gates;
  return JUDGED[run.execution ?? ""] ?? (Array.isArray(gates) && gates.length ? "Gate" : "");
}

function VerdictTab({ run }: { run: RunDetail }) {
  const document = useDocument(`/api/runs/${part(run.id)}/verdict`, run);
  if (document.problem && !document.data) {
    return document.problem.status === 404 ? <Empty title="There is no verdict.">{document.problem.message}</Empty> : <Trouble problem={document.problem} retry={document.refresh} />;
  }
  if (!document.data) return <Bones />;
  return (
    <div class="tabbody">
      <DocumentView document={{ ...document.data, title: verdictOf(run) === "Gate" ? "Gate" : document.data.title, about: document.data.about?.filter(([name]) => name !== "run") }} level={2} />
    </div>
  );
}

function StatusBadge({ run }: { run: RunDetail }) {
  if (run.status === "running") return <Badge tone="run">running</Badge>;
  if (run.gate) return <Badge tone={({ pass: "good", regression: "bad", fail: "bad", inconclusive: "warn", infrastructure: "apart" } as Record<string, string>)[run.gate.verdict] ?? ""}>{run.gate.verdict}</Badge>;
  return <Badge tone={isOpen(run) && run.status !== "pending" ? "warn" : ""}>{run.status === "pending" ? "waiting" : words(run.status)}</Badge>;
}

function Head({ run, refresh, set, quiet }: Omit<Shown, "tab"> & { quiet: boolean }) {
  const facts = [
    `${run.started_at ? "started" : "created"} ${when(run.started_at ?? run.created_at)}${run.owner ? ` by ${run.owner}` : ""}`,
    run.started_at && run.finished_at ? `took ${duration(run.finished_at - run.started_at)}` : "",
    run.running ? `${count(run.running)} at a time` : "",
    run.eta_s ? `about ${about(run.eta_s)} left` : "",
    run.cost_usd ? `${run.unknown_cost ? "at least " : ""}${dollars(run.cost_usd)}` : "",
    typeof run.vcs?.commit === "string" ? `commit ${String(run.vcs.commit).slice(0, 7)}` : "",
  ].filter(Boolean);
  return (
    <div class="head">
      <p class="kicker">
        <a href="/runs">Runs</a> / <a href={`/runs?q=name:${part(run.name)}`}>{run.name}</a> / <code>{run.id}</code>{" "}
        {run.tags.map((each) => (
          <span class="tag" key={each}>
            {each}
          </span>
        ))}
      </p>
      <div>
        <h1>
          {run.name} <StatusBadge run={run} />
        </h1>
        {!quiet && <p class="lead">{(run.done > 0 && prose(run.headline)) || `None of ${many(run.total, "trial")} has ended yet.`}</p>}
        <p class="meta" title={exact(run.started_at)}>
          {facts.join(" · ")}
          {run.status === "pending" && (
            <>
              {" · "}
              <a href="/queue">why it waits</a>
            </>
          )}
        </p>
      </div>
      {mayWrite() && <Actions run={run} refresh={refresh} set={set} />}
    </div>
  );
}

function Actions({ run, refresh, set }: Omit<Shown, "tab">) {
  const base = `/api/runs/${part(run.id)}`;
  const post = (verb: string, body?: unknown) => async (): Promise<void> => {
    set(await send<RunDetail>("POST", `${base}/${verb}`, body ?? {}));
    refresh();
  };
  const left = run.total - run.done;
  const tasks = run.kind !== "experiment";
  return (
    <div class="acts">
      {run.status === "running" && (
        <Act act={post("pause")} glyph="pause">
          Pause
        </Act>
      )}
      {["paused", "interrupted", "budget_exhausted"].includes(run.status) && (
        <Act act={post("resume")} css="main">
          Go on with {count(left)}
        </Act>
      )}
      {["paused", "interrupted", "budget_exhausted"].includes(run.status) && tasks && <RaiseBudget run={run} resume={(budget) => post("resume", budget)()} />}
      {run.errors_to_retry > 0 && (
        <Act act={post("resume", { errors: true })} glyph="retry" title="Only errors are tried again: to roll failures again would bias the score">
          Try {many(run.errors_to_retry, "error")} again
        </Act>
      )}
      {!isOpen(run) && (
        <a class="btn phone-off" href={`/certificates?run=${part(run.id)}&kind=aa`} title="How often would the gate call two equal sides different?">
          Noise
        </a>
      )}
      {!isRunning(run) && mayRepeat(run) && (
        <a class="btn" href={`/new?from=${part(run.id)}`}>
          Run again
        </a>
      )}
      {isRunning(run) ? (
        <button
          type="button"
          class="btn danger"
          onClick={() =>
            confirm({
              title: `Cancel ${run.name}?`,
              text: (
                <p>
                  {count(run.running)} running trials end now. The {count(run.done)} that have ended are kept.
                </p>
              ),
              yes: "Cancel the run",
              act: () => void post("cancel")(),
            })
          }
        >
          Cancel
        </button>
      ) : (
        <button
          type="button"
          class="btn danger phone-off"
          onClick={() =>
            confirm({
              title: `Delete ${run.name}?`,
              text: <p>Its {count(run.total)} trials, transcripts and logs are removed. This cannot be undone. Other runs are kept.</p>,
              yes: "Delete the run",
              act: () => void send("DELETE", base).then(() => go("/runs")),
            })
          }
        >
          Delete
        </button>
      )}
    </div>
  );
}

export function useDocument(address: string, run?: RunDetail) {
  const document = useResource<DocumentData>(address);
  useLive((changes) => {
    if (run && isRunning(run) && changes.some((each) => each.run === run.id && each.kind !== "trial.leased")) document.refresh();
  }, 3000);
  return document;
}

/** What the document says beyond the run's own head: a sentence before the result, and its warnings. */
function Ahead({ document, run }: { document: DocumentData; run: RunDetail }) {
  const same = run.headline !== "" && document.headline.endsWith(run.headline);
  const before = same ? document.headline.slice(0, -run.headline.length).trim() : "";
  const warnings = [...(before ? [before] : []), ...(document.warnings ?? []).filter((each) => !run.warnings.includes(each))];
  return (
    <>
      {!same && document.headline && <DocumentHead document={{ ...document, title: "Result", about: undefined }} level={2} />}
      <Warnings warnings={warnings} />
    </>
  );
}

function DocumentTab({ run, skip, only, empty }: { run: RunDetail; skip?: string[]; only?: string[]; empty?: string }) {
  const document = useDocument(`/api/runs/${part(run.id)}/document`, run);
  if (document.problem && !document.data) return <Trouble problem={document.problem} retry={document.refresh} />;
  if (!document.data) return <Bones />;
  const sections = document.data.sections?.filter((each) => (only ? only.includes(each.name ?? "") : !skip?.includes(each.name ?? "")));
  if (!sections?.length || !run.done) return <Empty title={empty ?? "Nothing has ended yet."} />;
  return (
    <div class="tabbody document">
      {!only && <Ahead document={document.data} run={run} />}
      <Sections sections={sections} />
    </div>
  );
}
