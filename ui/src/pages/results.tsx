// Pages that show one document: compare, history, certificates, leaderboard.
import { useState } from "preact/hooks";
import { useResource, type Listed } from "../api";
import { capital, many, when } from "../format";
import { Bones, Empty, Find, Trouble } from "../parts/controls";
import { Badge } from "../parts/marks";
import { DocumentView } from "../document/view";
import type { DocumentData } from "../document/types";
import { go, part, put, query } from "../router";
import { Page } from "../shell";
import type { RunRow } from "../types";

/** What an address answers as a document; some answer it beside other things. */
export function DocumentAt({ address }: { address: string }) {
  const found = useResource<DocumentData & { document?: DocumentData }>(address);
  if (found.problem) return <Trouble problem={found.problem} retry={found.refresh} />;
  if (!found.data) return <Bones />;
  return <DocumentView document={found.data.document ?? found.data} />;
}

function RunPicker({ name, label }: { name: string; label: string }) {
  const runs = useResource<Listed<RunRow>>("/api/runs?limit=100");
  const now = query.value.get(name) ?? "";
  const items = runs.data?.items ?? [];
  return (
    <div class="field">
      <label for={`pick-${name}`}>{label}</label>
      <select id={`pick-${name}`} value={now} onChange={(event) => put({ [name]: event.currentTarget.value }, false)}>
        <option value="">Choose a run</option>
        {now && !items.some((each) => each.id === now) && <option value={now}>{now}</option>}
        {items.map((each) => (
          <option key={each.id} value={each.id}>
            {each.name}, {when(each.created_at)} ({each.id})
          </option>
        ))}
      </select>
    </div>
  );
}

export function Compare() {
  const a = query.value.get("a") ?? "";
  const b = query.value.get("b") ?? "";
  return (
    <Page title="Compare" css="mid">
      <p class="kicker">
        <a href="/runs">Runs</a> / compare
      </p>
      {!(a && b) && (
        <div class="head">
          <div>
            <h1>Compare two runs</h1>
            <p class="lead">A is the baseline, B is what is judged.</p>
          </div>
        </div>
      )}
      <div class="toolbar formrow">
        <RunPicker name="a" label="A, the baseline" />
        <RunPicker name="b" label="B" />
        <button type="button" class="btn" disabled={!a || !b} onClick={() => put({ a: b, b: a }, false)}>
          Swap
        </button>
      </div>
      {a && b ? <DocumentAt address={`/api/compare?a=${part(a)}&b=${part(b)}`} /> : <Empty title="Choose two runs.">Or mark two in the list of runs and press c.</Empty>}
    </Page>
  );
}

interface SeriesRow {
  name: string;
  kind: string;
  runs: number;
  newest_at: number | null;
  newest: string;
}

export function History() {
  const series = query.value.get("series") ?? "";
  const metric = query.value.get("metric") ?? "";
  const found = useResource<Listed<SeriesRow>>("/api/series");
  const [find, set] = useState("");
  const items = found.data?.items ?? [];
  if (series) {
    return (
      <Page title={`History of ${series}`} css="mid">
        <p class="kicker">
          <a href="/history">History</a> / {series}
        </p>
        <DocumentAt address={`/api/history?series=${part(series)}${metric ? `&metric=${part(metric)}` : ""}`} />
      </Page>
    );
  }
  const shown = items.filter((each) => each.name.toLowerCase().includes(find.toLowerCase()));
  return (
    <Page title="History" css="mid">
      <div class="head">
        <div>
          <h1>History</h1>
          <p class="lead">Runs of the same name, in order. A change that stays is marked; one value alone proves nothing.</p>
        </div>
        <div class="acts">
          <a class="btn" href="/experiments">
            Experiments
          </a>
          <a class="btn" href="/leaderboard">
            Leaderboard
          </a>
          <a class="btn" href="/certificates">
            Certificates
          </a>
          <a class="btn" href="/timings">
            Timings
          </a>
        </div>
      </div>
      <div class="toolbar">
        <Find label="Filter series" value={find} set={set} />
      </div>
      {found.problem && <Trouble problem={found.problem} retry={found.refresh} />}
      {!found.data && !found.problem && <Bones />}
      {found.data && !shown.length && <Empty title={items.length ? "No series matches." : "No run has ended yet."}>{items.length ? null : "Give runs that belong together the same name; each name is a series here."}</Empty>}
      <div class="series">
        {shown.map((each) => (
          <a key={each.name} class="box" href={`/history?series=${part(each.name)}`}>
            <b class="trunc" title={each.name}>
              {each.name}
            </b>
            <span class="trunc">
              {many(each.runs, "run")} of {each.kind === "task" ? "tasks" : "an experiment"}
            </span>
            <small>newest {when(each.newest_at)}</small>
          </a>
        ))}
      </div>
    </Page>
  );
}

interface Certificate {
  run: string;
  kind: string;
  task: string;
  verdict: string;
  sentence: string;
  at: number;
}

const CERTIFIED: Record<string, string> = { sound: "good", flaky: "warn", unsettled: "warn" };

/** The noise of a run is certified when it is asked for: it takes some seconds. */
function OfRun({ run, kind }: { run: string; kind: string }) {
  return (
    <Page title="Certificate" css="mid">
      <p class="kicker">
        <a href="/certificates">Certificates</a> / <a href={`/runs/${part(run)}`}>{run}</a>
      </p>
      <DocumentAt address={`/api/certificates?run=${part(run)}${kind ? `&kind=${part(kind)}` : ""}`} />
    </Page>
  );
}

export function Certificates() {
  const chosen = query.value.get("run") ?? "";
  const found = useResource<Listed<Certificate>>(chosen ? "" : "/api/certificates");
  if (chosen) return <OfRun run={chosen} kind={query.value.get("kind") ?? ""} />;
  const items = found.data?.items ?? [];
  return (
    <Page title="Certificates" css="mid">
      <p class="kicker">
        <a href="/tasks">Tasks</a> / certificates
      </p>
      <div class="head">
        <div>
          <h1>Certificates</h1>
          <p class="lead">What was tried to see whether a task can be trusted. How noisy a run is, its own page says under Noise.</p>
        </div>
      </div>
      {found.problem && <Trouble problem={found.problem} retry={found.refresh} />}
      {!found.data && !found.problem && <Bones />}
      {found.data && !items.length && <Empty title="No task has been vetted here yet.">
          <code>proctor vet TASK</code> runs its solution, an agent that does nothing, and both under disturbance.
        </Empty>}
      {items.length > 0 && (
        <table class="stick">
          <thead>
            <tr>
              <th>task</th>
              <th>verdict</th>
              <th class="phone-off">in a sentence</th>
              <th class="n">when</th>
            </tr>
          </thead>
          <tbody>
            {items.map((each) => (
              <tr key={each.run + each.task}>
                <td class="top2 nw">
                  <a href={`/certificates?run=${part(each.run)}`}>{each.task}</a>
                </td>
                <td>
                  <Badge tone={CERTIFIED[each.verdict] ?? "bad"}>{each.verdict}</Badge>
                </td>
                <td class="phone-off dim certsaid">{capital(each.sentence.replace(/^\S+ is \w+: /, ""))}</td>
                <td class="n">{when(each.at)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Page>
  );
}

export function Leaderboard() {
  const chosen = query.value.getAll("run");
  const runs = useResource<Listed<RunRow>>("/api/runs?kind=task&limit=100");
  const items = runs.data?.items.filter((each) => each.done > 0) ?? [];
  const put = (ids: string[]): void => go(`/leaderboard${ids.length ? `?${ids.map((each) => `run=${part(each)}`).join("&")}` : ""}`, true);
  return (
    <Page title="Leaderboard" css="mid">
      <p class="kicker">
        <a href="/history">History</a> / leaderboard
      </p>
      {!chosen.length && (
        <div class="head">
          <div>
            <h1>Leaderboard</h1>
            <p class="lead">Choose the runs that take part. Places are ranges where the tests cannot tell two apart.</p>
          </div>
        </div>
      )}
      {runs.data && !items.length && <Empty title="No run of tasks is here yet.">A leaderboard ranks the agents of runs that you choose.</Empty>}
      <details class="folded" open={!chosen.length} hidden={!items.length}>
        <summary>{chosen.length ? `${many(chosen.length, "run")} ${chosen.length === 1 ? "takes" : "take"} part` : "Runs"}</summary>
        <div class="picks">
          {items.map((each) => (
            <label key={each.id} class="pick">
              <input type="checkbox" checked={chosen.includes(each.id)} onChange={() => put(chosen.includes(each.id) ? chosen.filter((id) => id !== each.id) : [...chosen, each.id])} />
              <span class="nm">{each.name}</span> <small>{[each.agents?.join(", "), each.models?.join(", "), when(each.created_at)].filter(Boolean).join(" · ")}</small>
            </label>
          ))}
        </div>
      </details>
      {chosen.length > 0 && <DocumentAt address={`/api/leaderboard?${chosen.map((each) => `run=${part(each)}`).join("&")}`} />}
    </Page>
  );
}
