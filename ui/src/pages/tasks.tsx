// Tasks: drop a ZIP, see its checks per file, run its solution first; and every task that is stored.
import { useState } from "preact/hooks";
import { asProblem, randomId, send, useResource, type Listed, type Problem } from "../api";
import { bytes, count, many } from "../format";
import { Act, Bones, Empty, Find, Trouble } from "../parts/controls";
import { Badge, Glyph, Interval, Meter } from "../parts/marks";
import { go, part } from "../router";
import { mayWrite, Page } from "../shell";

interface Upload {
  key: string;
  name: string;
  size: number;
  sent: number;
  problem?: Problem;
  answer?: Record<string, unknown>;
}

interface StoredTask {
  name: string;
  id?: string;
  digest?: string;
  trials?: number;
  passed?: number;
  scored?: number;
  stability?: string;
  description?: string;
  upload?: string;
  source?: string;
  score?: { value: number; low: number | null; high: number | null } | null;
}

interface Check {
  path?: string;
  file?: string;
  where?: string;
  name?: string;
  level?: string;
  severity?: string;
  ok?: boolean;
  message?: string;
  text?: string;
  hint?: string;
}

/** Send a file and tell how far it is; fetch cannot say that. */
function upload(file: File, told: (sent: number) => void): Promise<Record<string, unknown>> {
  return new Promise((done, fail) => {
    const request = new XMLHttpRequest();
    request.open("POST", "/api/tasks");
    request.setRequestHeader("X-Proctor-Request", "1");
    request.setRequestHeader("Idempotency-Key", randomId());
    request.upload.onprogress = (event) => told(event.loaded);
    request.onerror = () => fail(new Error("The server does not answer."));
    request.onload = () => {
      let answer: Record<string, unknown> = {};
      try {
        answer = JSON.parse(request.responseText) as Record<string, unknown>;
      } catch {
        // Told by the status below.
      }
      if (request.status < 300) done(answer);
      else fail(Object.assign(asProblem(new Error(String(answer.detail ?? answer.title ?? `The server answered ${request.status}.`))), { status: request.status, errors: answer.errors ?? [] }));
    };
    const body = new FormData();
    body.append("file", file);
    request.send(body);
  });
}

export function Tasks() {
  const [uploads, set] = useState<Upload[]>([]);
  const [chosen, choose] = useState("");
  const [over, hover] = useState(false);
  const tasks = useResource<Listed<StoredTask>>("/api/stored-tasks");
  const earlier = useResource<Listed<Record<string, unknown>>>("/api/uploads?limit=50");
  const change = (key: string, more: Partial<Upload>): void => set((before) => before.map((each) => (each.key === key ? { ...each, ...more } : each)));
  const take = (files: Iterable<File>): void => {
    for (const file of files) {
      const key = randomId();
      set((before) => [...before, { key, name: file.name, size: file.size, sent: 0 }]);
      choose(key);
      upload(file, (sent) => change(key, { sent })).then(
        (answer) => {
          change(key, { answer, sent: file.size });
          earlier.refresh();
        },
        (error: unknown) => change(key, { problem: asProblem(error) }),
      );
    }
  };
  const before = (earlier.data?.items ?? [])
    .filter((each) => !uploads.some((one) => one.answer?.id === each.id))
    .map((each) => ({ key: String(each.id), name: String(each.filename ?? each.name), size: Number(each.size_bytes ?? 0), sent: Number(each.size_bytes ?? 0), answer: each }));
  const all: Upload[] = [...uploads, ...before];
  const shown = all.find((each) => each.key === chosen) ?? all[0];
  const total = tasks.data?.total ?? tasks.data?.items.length ?? 0;
  return (
    <Page title="Tasks" css="mid">
      <div class="head">
        <div>
          <h1>Tasks</h1>
          <p class="lead">{tasks.data ? (total ? `${many(total, "task")} ${total === 1 ? "is" : "are"} stored here.` : "No task is stored here yet.") : "…"}</p>
        </div>
        <div class="acts">
          <a class="btn" href="/certificates">
            Certificates
          </a>
        </div>
      </div>
      {mayWrite() && (
        <label
          class={`drop ${over ? "over" : ""}`}
          onDragOver={(event) => {
            event.preventDefault();
            hover(true);
          }}
          onDragLeave={() => hover(false)}
          onDrop={(event) => {
            event.preventDefault();
            hover(false);
            take(event.dataTransfer?.files ?? []);
          }}
        >
          <Glyph name="up" />
          <span>
            <b>Drop task ZIPs here</b>, or <span class="lnk">choose files</span>.
            <br />
            <small>Harbor and Terminal-Bench 2 folders as ZIP files. Nothing runs until you say so.</small>
          </span>
          <input type="file" class="vh" accept=".zip,application/zip" multiple onChange={(event) => take(event.currentTarget.files ?? [])} />
        </label>
      )}
      {all.length > 0 && (
        <div class="upl">
          <ul class="box ulist" aria-label="Uploads">
            {all.map((each) => (
              <li key={each.key} class={each === shown ? "on" : ""}>
                <a
                  href="#uploads"
                  onClick={(event) => {
                    event.preventDefault();
                    choose(each.key);
                  }}
                >
                  <Glyph name={each.problem ? "cross" : !each.answer ? "dots" : checksOf(each.answer).length ? "bang" : "check"} />
                  <span class="trunc" title={each.name}>
                    {each.name}
                  </span>
                  <small>{each.problem ? "refused" : each.answer ? (checksOf(each.answer).length ? many(checksOf(each.answer).length, "warning") : "ready") : `${Math.round((100 * each.sent) / Math.max(1, each.size))} %`}</small>
                </a>
              </li>
            ))}
          </ul>
          {shown && <UploadBox upload={shown} />}
        </div>
      )}
      <Stored tasks={tasks.data?.items} problem={tasks.problem} retry={tasks.refresh} />
    </Page>
  );
}

const checksOf = (answer: Record<string, unknown>): Check[] => {
  for (const name of ["checks", "findings", "lint", "warnings"]) if (Array.isArray(answer[name])) return (answer[name] as (Check | string)[]).map((each) => (typeof each === "string" ? { message: each, level: "warning" } : each));
  return [];
};

function UploadBox({ upload: { name, size, sent, problem, answer } }: { upload: Upload }) {
  const id = String(answer?.id ?? answer?.upload ?? "");
  const task = String(answer?.task ?? answer?.name ?? "");
  const checks = answer ? checksOf(answer) : [];
  const solvable = !checks.some((each) => (each.path ?? each.file ?? each.where) === "solution");
  return (
    <div class="box">
      <header>
        <h2>{name}</h2>
        <small>{bytes(size)}</small>
      </header>
      <div class="in">
        {problem && <Trouble problem={problem} title={problem.status ? "This ZIP was refused" : ""} />}
        {!problem && !answer && <p class="dim">{sent < size ? "Coming in." : "Being checked."}</p>}
        {answer && (
          <>
            <p>
              <b>{task}</b> {answer.description ? <span class="dim">{String(answer.description)} </span> : null}
              {answer.duplicate ? <Badge>known already</Badge> : null}
            </p>
            <ul class="checks">
              {checks.map((each, at) => {
                const bad = each.ok === false || /error|bad/.test(each.level ?? each.severity ?? "");
                const warn = !bad;
                return (
                  <li key={at} class={bad ? "no" : warn ? "wa" : "ok"}>
                    <Glyph name={bad ? "cross" : warn ? "bang" : "check"} />
                    <span>
                      <b>{each.path ?? each.file ?? each.where ?? each.name}</b> {each.message ?? each.text}
                      {each.hint && <small>; {each.hint}</small>}
                    </span>
                  </li>
                );
              })}
              {!checks.length && (
                <li class="ok">
                  <Glyph name="check" />
                  <span>The checks found nothing wrong.</span>
                </li>
              )}
            </ul>
            <p class="acts start">
              {solvable && (
                <Act
                  css="main"
                  act={async () => {
                    const run = await send<{ id: string }>("POST", "/api/runs", { spec: { name: `check ${task}`, tasks: [{ path: { upload: id }, agent: "oracle", rollouts: 3 }] } });
                    go(`/runs/${part(run.id)}`);
                  }}
                >
                  Run the author’s solution first
                </Act>
              )}
              <a class="btn" href={`/new?upload=${part(id)}`}>
                New run with this task
              </a>
            </p>
          </>
        )}
      </div>
    </div>
  );
}

const Share = ({ passed, scored }: { passed: number; scored: number }) => (
  <span class="scw">
    <Meter part={passed} whole={scored} tone="good" label={`${passed} of ${scored}`} />
    <span>
      {count(passed)} of {count(scored)}
    </span>
  </span>
);

function Stored({ tasks, problem, retry }: { tasks: StoredTask[] | undefined; problem: Problem | undefined; retry: () => void }) {
  const [find, set] = useState("");
  if (problem) return <Trouble problem={problem} retry={retry} />;
  if (!tasks) return <Bones />;
  if (!tasks.length) {
    return (
      <Empty title="Tasks appear here when they were uploaded or have run.">
        <code>proctor new task first-task</code> writes a folder to begin with: an instruction, a sandbox, tests and a solution. Pack it as a ZIP and drop it above.
      </Empty>
    );
  }
  const shown = tasks.filter((each) => each.name.toLowerCase().includes(find.toLowerCase()));
  const rated = tasks.some((each) => each.trials !== undefined);
  return (
    <section>
      <div class="h2">
        <h2>All tasks</h2>
        <small>{count(tasks.length)}</small>
      </div>
      <div class="toolbar">
        <Find label="Filter tasks" value={find} set={set} />
      </div>
      <table class="stick">
        <thead>
          <tr>
            <th>task</th>
            {rated && <th>passed, all agents</th>}
            {rated && <th class="n phone-off">trials</th>}
            <th class="phone-off digest">digest</th>
            <th>
              <span class="vh">act</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.slice(0, 1000).map((each) => (
            <tr key={each.name + (each.digest ?? "")}>
              <td class="nm2">
                <span class="trunc top2" title={each.name}>
                  {each.name}
                </span>
              </td>
              {rated && <td>{each.score ? <Interval value={each.score.value} low={each.score.low} high={each.score.high} /> : each.scored && each.passed !== undefined ? <Share passed={each.passed} scored={each.scored} /> : <span class="dim">–</span>}</td>}
              {rated && <td class="n phone-off">{count(each.trials)}</td>}
              <td class="phone-off dim mono digest">{each.digest?.slice(0, 12)}</td>
              <td class="n">
                {mayWrite() && (
                  <a class="btn sm" href={`/new?task=${part(each.name)}`}>
                    Run
                  </a>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
