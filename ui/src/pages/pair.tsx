// Two rollouts side by side: what both do is folded, and where they part is open.
import { useState } from "preact/hooks";
import { useResource } from "../api";
import { dollars, duration, known, many, prose } from "../format";
import { useKeys } from "../keys";
import { Bones, Empty, Trouble } from "../parts/controls";
import { Glyph, Sign } from "../parts/marks";
import { go, part, query } from "../router";
import { Page } from "../shell";
import { StepView } from "../trial/step";
import { stepsOf, type Step } from "../trial/steps";
import type { StepData } from "../trial/types";
import { testsOf, type VerifierData } from "../trial/verifier";
import type { TrialRow } from "../types";

interface Side {
  run: string;
  steps: number;
  name: string;
  trial: TrialRow;
}

interface Place {
  from: number;
  count: number;
}

interface Span {
  same: boolean;
  a: Place;
  b: Place;
}

interface Beside {
  a: Side;
  b: Side;
  sentence: string;
  spans: Span[];
}

/** Steps of a difference that are open at once. */
const SHOWN = 10;

const placeOf = (name: string): [string, string] => {
  const [run = "", index = ""] = (query.value.get(name) ?? "").split("/");
  return [run, index];
};
const nameOf = (side: Side): string => `${side.run}/${side.trial.index}`;

export function Pair() {
  const [run, index] = placeOf("a");
  const [otherRun, other] = placeOf("b");
  const found = useResource<Beside>(index && other ? `/api/trials/${part(run)}/${part(index)}/beside?other=${part(other)}${otherRun === run ? "" : `&other_run=${part(otherRun)}`}` : "");
  if (!index || !other) {
    return (
      <Page title="Side by side" css="mid">
        <div class="head">
          <h1>Two trials side by side</h1>
        </div>
        <Empty title="Choose two trials.">Open a trial: beside its other rollouts stands “side by side”.</Empty>
      </Page>
    );
  }
  if (!found.data) return <Page title="Side by side">{found.problem ? <Trouble problem={found.problem} retry={found.refresh} head /> : <Bones />}</Page>;
  return <Loaded key={`${nameOf(found.data.a)} ${nameOf(found.data.b)}`} found={found.data} />;
}

function Loaded({ found }: { found: Beside }) {
  const { a, b, spans } = found;
  const [at, set] = useState(0);
  const differences = spans.map((each, place) => (each.same ? -1 : place)).filter((each) => each >= 0);
  const next = (): void => {
    const place = differences[at % differences.length];
    set(at + 1);
    document.getElementById(`d${place}`)?.scrollIntoView({ block: "start" });
  };
  useKeys({ n: next });
  const task = a.trial.task === b.trial.task ? a.trial.task : `${a.trial.task} and ${b.trial.task}`;
  return (
    <Page title={`${task}, side by side`}>
      <div class="head">
        <p class="kicker">
          <a href="/runs">Runs</a> / <a href={`/runs/${part(a.run)}`}>{a.run}</a> / {task} / {a.name} and {b.name}
        </p>
        <div>
          <h1>{task}, side by side</h1>
          <p class="lead">
            {prose(found.sentence)} {ended(a)}, {ended(b)}.
          </p>
        </div>
        <div class="acts">
          <button type="button" class="btn" onClick={() => go(`/pair?a=${nameOf(b)}&b=${nameOf(a)}`, true)}>
            Swap
          </button>
          {differences.length > 0 && (
            <button type="button" class="btn phone-off" onClick={next}>
              <Glyph name="dn" />
              Next difference <kbd>n</kbd>
            </button>
          )}
        </div>
      </div>
      <div class="pairh">
        {[a, b].map((each) => (
          <div key={nameOf(each)}>
            <Sign outcome={each.trial.outcome} state={each.trial.state} reward={each.trial.reward} />
            <a href={`/trials/${nameOf(each)}`}>
              <b>{each.name}</b>
            </a>
            <span class="dim">{[(each.trial.outcome ?? each.trial.state).replaceAll("_", " "), many(each.steps, "step"), known(each.trial.took_s) ? duration(each.trial.took_s) : "", each.trial.cost_usd ? dollars(each.trial.cost_usd) : ""].filter(Boolean).join(" · ")}</span>
          </div>
        ))}
      </div>
      {spans.map((each, place) => (
        <SpanView key={place} id={`d${place}`} span={each} a={a} b={b} first={place === differences[0]} />
      ))}
      <Tests a={a} b={b} />
      <p class="cap">Steps are paired by what they do (command and file), not by their number. One pair of rollouts explains one failure; it does not prove a cause.</p>
    </Page>
  );
}

const ended = (side: Side): string => `${side.name} ${({ passed: "passes", failed: "fails" } as Record<string, string>)[side.trial.outcome ?? ""] ?? `ends as ${(side.trial.outcome ?? side.trial.state).replaceAll("_", " ")}`}`;

const steps = ({ from, count }: Place): string => (count === 1 ? `Step ${from}` : `Steps ${from}–${from + count - 1}`);

function SpanView({ id, span, a, b, first }: { id: string; span: Span; a: Side; b: Side; first: boolean }) {
  const [open, unfold] = useState(!span.same);
  const [shown, more] = useState(SHOWN);
  const most = Math.max(span.a.count, span.b.count);
  return (
    <div id={id} class="pairspan">
      {first && (
        <p class="part">
          <span>
            <Glyph name="flag" /> first difference
          </span>
        </p>
      )}
      {span.same && (
        <div class="gap2">
          <button type="button" class="btn quiet sm" aria-expanded={open} onClick={() => unfold(!open)}>
            {steps(span.a)} {span.a.count === 1 ? "does" : "do"} the same{span.a.from === span.b.from ? "" : ` as ${steps(span.b).toLowerCase()} of ${b.name}`}
          </button>
          <span>{many(span.a.count, "step")} on either side</span>
        </div>
      )}
      {open && <Rows span={span} a={a} b={b} shown={Math.min(shown, most)} />}
      {open && most > shown && (
        <div class="gap2">
          <button type="button" class="btn quiet sm" onClick={() => more(shown + 5 * SHOWN)}>
            {Math.min(span.a.count, span.b.count) > shown ? "More of this difference" : `${span.a.count > span.b.count ? a.name : b.name} has ${many(most - shown, "step")} more`}
          </button>
        </div>
      )}
    </div>
  );
}

function useSteps(side: Side, place: Place, shown: number): Step[] {
  const count = Math.min(place.count, shown, 500);
  const found = useResource<{ steps: StepData[] }>(count ? `/api/trials/${part(side.run)}/${side.trial.index}/transcript?from=${place.from - 1}&limit=${count}` : "");
  return stepsOf(found.data?.steps ?? [], place.from - 1);
}

function Rows({ span, a, b, shown }: { span: Span; a: Side; b: Side; shown: number }) {
  const left = useSteps(a, span.a, shown);
  const right = useSteps(b, span.b, shown);
  const one = (side: Side, step: Step | undefined) => (
    <div class="pc">{step && <StepView step={step} on={!span.same} find="" whole={() => go(`/trials/${nameOf(side)}#s${step.number}`)} agent={side.trial.agent} base={`/trials/${nameOf(side)}`} />}</div>
  );
  return (
    <div class="pair">
      {Array.from({ length: shown }, (_, at) => (
        <>
          {one(a, left[at])}
          {one(b, right[at])}
        </>
      ))}
    </div>
  );
}

function Tests({ a, b }: { a: Side; b: Side }) {
  const left = useResource<VerifierData>(`/api/trials/${part(a.run)}/${a.trial.index}/verifier`);
  const right = useResource<VerifierData>(`/api/trials/${part(b.run)}/${b.trial.index}/verifier`);
  const sides = [testsOf(left.data), testsOf(right.data)];
  const names = [...new Set(sides.flatMap((each) => each.map((test) => test.name)))];
  if (!names.length) return null;
  const one = (side: number, name: string) => {
    const test = sides[side]?.find((each) => each.name === name);
    return <td>{test ? <Sign outcome={test.status === "passed" ? "passed" : test.status === "failed" ? "failed" : "skipped"} /> : "–"}</td>;
  };
  return (
    <section>
      <h2>Tests</h2>
      <table class="pairtests">
        <thead>
          <tr>
            <th>test</th>
            <th>{a.name}</th>
            <th>{b.name}</th>
          </tr>
        </thead>
        <tbody>
          {names.map((each) => (
            <tr key={each}>
              <td class="mono">{each}</td>
              {one(0, each)}
              {one(1, each)}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
