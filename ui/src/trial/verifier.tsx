// What the verifier said: suspect files first, rewards by step, tests with their output, the judge, controls.
import type { ComponentChildren } from "preact";
import { useResource } from "../api";
import { duration, known, reward, words } from "../format";
import { blameOf, isApart } from "../outcomes";
import { Bones, Empty, Trouble } from "../parts/controls";
import { Glyph, Meter, Sign } from "../parts/marks";
import { Said, Terminal } from "../parts/terminal";
import { part } from "../router";
import type { Attempt, TrialDetail } from "./types";

export interface Test {
  name: string;
  status: string;
  seconds: number | null;
  message: string;
  trace: string;
  step: string;
}

export interface VerifierData {
  reward?: number | null;
  rewards?: Record<string, number | null> | null;
  /** The reward of each step of a task that has several. */
  steps?: Record<string, number | null> | null;
  tests?: unknown;
  judge?: unknown;
  rubrics?: Record<string, unknown>[] | null;
  controls?: unknown;
  control?: unknown;
  suspect?: unknown;
  system_changes?: unknown;
  log?: string | null;
  output?: string | null;
  failure?: { message?: string; type?: string; phase?: string } | null;
}

const asList = (value: unknown): Record<string, unknown>[] => {
  if (Array.isArray(value)) return value as Record<string, unknown>[];
  if (value && typeof value === "object") {
    const inside = value as Record<string, unknown>;
    for (const name of ["tests", "results", "items"]) if (inside[name]) return asList(inside[name]);
  }
  return [];
};

/** The tests of a CTRF report, however deep it lies. */
export function testsOf(data: VerifierData | undefined): Test[] {
  return asList(data?.tests).map((each) => ({
    name: String(each.name ?? ""),
    status: String(each.status ?? "other"),
    seconds: typeof each.seconds === "number" ? each.seconds : typeof each.duration_s === "number" ? each.duration_s : typeof each.duration === "number" ? each.duration / 1000 : null,
    message: String(each.message ?? ""),
    trace: String(each.trace ?? ""),
    step: String(each.step ?? each.suite ?? ""),
  }));
}

export function Verifier({ detail, attempt }: { detail: TrialDetail; attempt: Attempt | undefined }) {
  const found = useResource<VerifierData>(attempt ? `/api/trials/${part(detail.run.id)}/${detail.trial.index}/verifier?attempt=${attempt.number}` : "");
  if (!attempt) return <Empty title="The tests have not run yet." />;
  if (!found.data) return found.problem ? <Trouble problem={found.problem} retry={found.refresh} /> : <Bones />;
  const data = found.data;
  const tests = testsOf(data);
  const rubrics = asList(data.rubrics ?? data.judge);
  return (
    <>
      <Suspect changes={data.suspect ?? attempt.suspect} detail={detail} />
      {attempt.failure?.message && !detail.sentence.includes(attempt.failure.message) && <Failure attempt={attempt} />}
      <div class="vv tabbody">
        <div>
          <Rewards data={data} attempt={attempt} />
          <Tests tests={tests} />
          <Rubrics rubrics={rubrics} />
          {!tests.length && !rubrics.length && (data.output || data.log) && (
            <section>
              <h2>What the tests wrote</h2>
              <Terminal id="v" text={data.output ?? data.log ?? ""} />
            </section>
          )}
        </div>
        <aside class="vside" aria-label="Around the verifier">
          <Controls controls={asList(data.controls ?? data.control)} />
          <Notes notes={attempt.notes} />
        </aside>
      </div>
    </>
  );
}

function Failure({ attempt }: { attempt: Attempt }) {
  const { phase, type, message } = attempt.failure ?? {};
  return (
    <div class={`notice ${isApart(attempt.outcome) || blameOf(attempt.outcome ?? "") === "person" ? "" : "bad"}`}>
      <h2>
        {words(attempt.outcome)}
        {phase ? `, during ${phase}` : ""}
      </h2>
      <p>
        {type && <code>{type}</code>} <Said text={message ?? ""} />
      </p>
    </div>
  );
}

const isTrue = (value: unknown): boolean => !!value && !(Array.isArray(value) && !value.length);

function Suspect({ changes, detail }: { changes: unknown; detail: TrialDetail }) {
  if (!isTrue(changes) && !detail.trial.suspect) return null;
  const files = asList(Array.isArray(changes) ? changes : ((changes as Record<string, unknown> | null)?.files ?? (changes as Record<string, unknown> | null)?.changes));
  const said = typeof changes === "string" ? changes : String((changes as Record<string, unknown> | null)?.sentence ?? (changes as Record<string, unknown> | null)?.message ?? "Files outside the task’s folder were changed.");
  return (
    <section class="notice sus tabbody">
      <h2>
        <Glyph name="bang" /> Suspect: system files changed
      </h2>
      <p>{said}</p>
      {files.length > 0 && (
        <table>
          <thead>
            <tr>
              <th>file</th>
              <th>change</th>
            </tr>
          </thead>
          <tbody>
            {files.map((each, at) => (
              <tr key={at}>
                <td class="pathc mono">{String(each.path ?? each.name ?? each)}</td>
                <td>{String(each.change ?? each.kind ?? "")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function Rewards({ data, attempt }: { data: VerifierData; attempt: Attempt }) {
  const total = data.reward ?? attempt.reward;
  const named = data.rewards ?? (attempt.metrics?.rewards as Record<string, number> | undefined) ?? {};
  const steps = Object.entries(data.steps ?? {});
  const rows = steps.length ? steps : Object.entries(named);
  return (
    <section class="leadtight">
      <div class="h2">
        <h2>Reward</h2>
        <small>{known(total) ? reward(total) : "none was given"}</small>
      </div>
      {rows.length > 0 && (
        <table class="rewt">
          <thead>
            <tr>
              <th>{steps.length ? "step" : "reward"}</th>
              <th class="n">value</th>
              <th class="mt">
                <span class="vh">as a bar</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map(([name, value]) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td class="n">
                  <b>{reward(value)}</b>
                </td>
                <td class="mt">{known(value) && value >= 0 && value <= 1 && <Meter part={value} whole={1} tone="good" label={`reward ${reward(value)}`} />}</td>
              </tr>
            ))}
          </tbody>
          {steps.length > 0 && (
            <tfoot>
              <tr>
                <th scope="row">all steps</th>
                <td class="n">
                  <b>{reward(total)}</b>
                </td>
                <td />
              </tr>
            </tfoot>
          )}
        </table>
      )}
    </section>
  );
}

const number = (value: unknown): number | null => (typeof value === "number" ? value : null);

function Tests({ tests }: { tests: Test[] }) {
  if (!tests.length) return null;
  const passed = tests.filter((each) => each.status === "passed").length;
  const groups = [...new Set(tests.map((each) => each.step))];
  return (
    <section>
      <div class="h2">
        <h2>Tests</h2>
        <small>
          {passed} of {tests.length} passed{passed < tests.length ? "; failed ones are open" : ""}
        </small>
      </div>
      {groups.map((group) => (
        <div key={group}>
          {groups.length > 1 && <h3>{group || "tests"}</h3>}
          <ul class="vt">
            {tests
              .filter((each) => each.step === group)
              .map((each) => (
                <TestLine key={each.name} test={each} />
              ))}
          </ul>
        </div>
      ))}
    </section>
  );
}

function TestLine({ test }: { test: Test }) {
  const sign = <Sign outcome={test.status === "passed" ? "passed" : test.status === "failed" ? "failed" : "skipped"} title={test.status} />;
  const name = <code class="trunc">{test.name}</code>;
  const took = <small>{test.seconds === null ? test.status : duration(test.seconds)}</small>;
  const said = [test.message, test.trace].filter(Boolean).join("\n");
  if (!said) {
    return (
      <li>
        <span class="tr">
          {sign}
          {name}
          {took}
        </span>
      </li>
    );
  }
  return (
    <li>
      <details open={test.status === "failed"}>
        <summary class="tr op">
          {sign}
          {name}
          {took}
          <Glyph name="down" />
        </summary>
        <Terminal id={`t-${test.name}`} text={said} bare />
      </details>
    </li>
  );
}

function Rubrics({ rubrics }: { rubrics: Record<string, unknown>[] }) {
  if (!rubrics.length) return null;
  const votes = (value: unknown): ComponentChildren => (Array.isArray(value) ? <span class="cs s">{value.map((each, at) => <Sign key={at} outcome={each === true || Number(each) >= 0.5 ? "passed" : "failed"} title={String(each)} />)}</span> : null);
  return (
    <section>
      <h2>Judge and tests, side by side</h2>
      <table class="jt">
        <thead>
          <tr>
            <th>rubric</th>
            <th class="n phone-off">weight</th>
            <th>votes</th>
            <th class="n">judge</th>
            <th class="n">tests</th>
          </tr>
        </thead>
        <tbody>
          {rubrics.map((each, at) => {
            const judged = number(each.judge_score ?? each.score);
            const unit = number(each.unit_score);
            const apart = judged !== null && unit !== null && Math.abs(judged - unit) > 0.5;
            return (
              <tr key={at} class={apart ? "dis" : ""}>
                <td class="cr">
                  {String(each.name ?? each.criterion ?? each.text ?? each.id ?? at + 1)}
                  {apart && <span class="sub bad-t">they disagree</span>}
                </td>
                <td class="n phone-off">{reward(number(each.weight))}</td>
                <td>{votes(each.votes)}</td>
                <td class="n">{reward(judged)}</td>
                <td class="n">{unit === null ? "untested" : reward(unit)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

function Controls({ controls }: { controls: Record<string, unknown>[] }) {
  if (!controls.length) return null;
  return (
    <div class="box">
      <header>
        <h3>Controls</h3>
      </header>
      <ul class="ctl">
        {controls.map((each, at) => (
          <li key={at}>
            <Sign outcome={each.ok === true || each.outcome === "passed" ? "passed" : "failed"} />
            <span>
              {String(each.name ?? each.kind ?? "control")}
              <small>{String(each.text ?? each.message ?? "")}</small>
            </span>
            <small>{reward(number(each.reward))}</small>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Notes({ notes }: { notes: string[] | undefined }) {
  if (!notes?.length) return null;
  return (
    <div class="box">
      <header>
        <h3>Remarks</h3>
      </header>
      <div class="in">
        <ul class="listed">
          {notes.map((each) => (
            <li key={each}>{each}</li>
          ))}
        </ul>
      </div>
    </div>
  );
}
