// The transcript: a list of steps at the left, the steps around the current one in the middle, evidence at the right.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { expectAnswer, get, type Problem } from "../api";
import { count, duration, many } from "../format";
import { useKeys } from "../keys";
import { useLive } from "../live";
import { Bones, Empty, Find, toast, copy, Trouble } from "../parts/controls";
import { Glyph } from "../parts/marks";
import { fragment, mark, part, put, query } from "../router";
import { Evidence } from "./evidence";
import { Outline } from "./outline";
import { StepView } from "./step";
import { stepsOf, wordsOf, type Step } from "./steps";
import { Strip } from "./strip";
import { Follow, useLogs } from "./tail";
import type { Attempt, StepData, TrialDetail } from "./types";

const FIRST = 60;
const PAGE = 500;
const AT_ONCE = 4;
/** How many steps around the current one are in the document. */
const AROUND = 15;

export interface TranscriptData {
  steps: Step[];
  total: number;
  loading: boolean;
  problem: Problem | undefined;
  whole: (number: number) => void;
}

interface Page {
  steps: StepData[];
  total: number;
}

interface Found extends Page {
  loading: boolean;
  problem: Problem | undefined;
}

const addressOf = (base: string, at: number, limit: number, attempt: number): string => `${base}?from=${at}&limit=${limit}${attempt ? `&attempt=${attempt}` : ""}`;
const baseOf = (run: string, index: number | string): string => `/api/trials/${part(run)}/${index}/transcript`;
const linkedStep = (): number => Number(/^s(\d+)/.exec(fragment.peek())?.[1] ?? 0);
const firstStep = (): number => Math.max(0, linkedStep() - 1 - FIRST / 4);

/** Ask for the first steps while the trial itself is still on its way. */
export const expectTranscript = (run: string, index: string, attempt: number): void => expectAnswer(addressOf(baseOf(run, index), firstStep(), FIRST, attempt));

/** All steps of an attempt, page after page; those of a running trial as they come. */
export function useTranscript(detail: TrialDetail, attempt: number): TranscriptData {
  const base = baseOf(detail.run.id, detail.trial.index);
  const [found, set] = useState<Found>({ steps: [], total: 0, loading: true, problem: undefined });
  const now = useRef(found);
  now.current = found;
  const turn = useRef(0);
  const ask = (at: number, limit: number) => get<Page>(addressOf(base, at, limit, attempt));
  /** From a place on; the steps around a linked one come first, the others when all are here. */
  const load = async (from: number): Promise<void> => {
    const mine = ++turn.current;
    const tell = (next: Found): void => set((now.current = next));
    let steps = now.current.steps.slice(0, from);
    try {
      const at = from || firstStep();
      const first = await ask(at, FIRST);
      if (turn.current !== mine) return;
      const total = first.total;
      const whole = at === from ? from + first.steps.length >= total : false;
      tell({ steps: [...steps, ...first.steps], total, loading: !whole, problem: undefined });
      if (whole) return;
      if (at === from) steps = now.current.steps;
      while (steps.length < total) {
        const places = Array.from({ length: AT_ONCE }, (_, each) => steps.length + each * PAGE).filter((place) => place < total);
        const pages = await Promise.all(places.map((each) => ask(each, PAGE)));
        if (turn.current !== mine) return;
        const more = pages.flatMap((each) => each.steps);
        if (!more.length) break;
        steps = [...steps, ...more];
      }
      tell({ steps, total, loading: false, problem: undefined });
    } catch (problem) {
      if (turn.current === mine) set({ ...now.current, loading: false, problem: (problem as Problem).status === 404 ? undefined : (problem as Problem) });
    }
  };
  useEffect(() => {
    set({ steps: [], total: 0, loading: true, problem: undefined });
    now.current = { steps: [], total: 0, loading: true, problem: undefined };
    void load(0);
    return () => void (turn.current += 1);
  }, [base, attempt]);
  useLive((changes) => {
    if (detail.live && changes.some((each) => each.run === detail.run.id)) void load(now.current.steps.length);
  }, 1000);
  const whole = (number: number): void => {
    const at = now.current.steps.findIndex((each, place) => (each.id ?? each.step_id ?? place + 1) === number);
    void get<StepData | { steps: StepData[] }>(`${base}?step=${number}&full=1${attempt ? `&attempt=${attempt}` : ""}`).then((answer) => {
      const full = "steps" in answer ? answer.steps[0] : answer;
      if (full && at >= 0) set({ ...now.current, steps: now.current.steps.map((each, place) => (place === at ? full : each)) });
    });
  };
  const steps = useMemo(() => stepsOf(found.steps), [found.steps]);
  return { steps, total: found.total, loading: found.loading, problem: found.problem, whole };
}

export function Transcript({ detail, attempt, transcript }: { detail: TrialDetail; attempt: Attempt | undefined; transcript: TranscriptData }) {
  const { steps, loading, problem } = transcript;
  const find = query.value.get("find") ?? "";
  const kind = query.value.get("show") ?? "";
  const hits = useMemo(() => (find.length > 1 ? steps.filter((each) => wordsOf(each).includes(find.toLowerCase())).map((each) => each.number) : []), [steps, find]);
  const linked = Number(/^s(\d+)/.exec(fragment.value)?.[1] ?? 0);
  const current = linked || steps[0]?.number || 1;
  const shown = steps.filter((each) => !kind || (kind === "failed" ? each.failed : each.kind === kind));
  const move = (number: number | undefined): void => {
    if (number === undefined) return;
    mark(`s${number}`);
    requestAnimationFrame(() => document.getElementById(`s${number}`)?.scrollIntoView({ block: "start" }));
  };
  const beside = (numbers: number[], way: 1 | -1): number | undefined =>
    way === 1 ? (numbers.find((each) => each > current) ?? numbers[0]) : ([...numbers].reverse().find((each) => each < current) ?? numbers[numbers.length - 1]);
  const numbers = shown.map((each) => each.number);
  const failures = steps.filter((each) => each.failed).map((each) => each.number);
  useKeys({
    j: () => move(numbers.find((each) => each > current)),
    k: () => move([...numbers].reverse().find((each) => each < current)),
    e: () => move(beside(failures, 1)),
    n: () => move(beside(hits, 1)),
    N: () => move(beside(hits, -1)),
    o: () => document.querySelectorAll<HTMLDetailsElement>(`#s${current} details`).forEach((each) => (each.open = !each.open)),
    y: () => void copy(location.href).then(() => toast("Link copied")),
    Escape: () => put({ find: null }),
  });
  if (problem && !steps.length) return <Trouble problem={problem} />;
  if (!steps.length) return loading ? <Bones /> : <NoTranscript detail={detail} />;
  const tools = (
    <>
      <Find label="Find in transcript" hint="f" value={find} set={(text) => put({ find: text })} />
      <div class="fr">
        <small role="status">{find.length > 1 ? (hits.length ? `${many(hits.length, "step")} match, also inside folded output` : "nothing found") : loading ? `${count(steps.length)} of ${count(transcript.total)} steps so far` : ""}</small>
        {hits.length > 0 && (
          <span class="end">
            <button type="button" class="btn quiet sm sq" aria-label="Previous match" onClick={() => move(beside(hits, -1))}>
              <Glyph name="up" />
            </button>
            <button type="button" class="btn quiet sm sq" aria-label="Next match" onClick={() => move(beside(hits, 1))}>
              <Glyph name="dn" />
            </button>
          </span>
        )}
      </div>
    </>
  );
  return (
    <>
      <Strip attempt={attempt} steps={steps} current={current} move={move} />
      <div class="tv">
        <Outline steps={steps} shown={shown} current={current} hits={hits} kind={kind} tools={tools} move={move} />
        <Steps steps={shown} current={current} find={find.length > 1 ? find : ""} detail={detail} whole={transcript.whole} />
        <Evidence detail={detail} attempt={attempt} steps={steps} />
      </div>
      <PhoneBar numbers={numbers} current={current} failures={failures} move={move} />
    </>
  );
}

function Steps({ steps, current, find, detail, whole }: { steps: Step[]; current: number; find: string; detail: TrialDetail; whole: (number: number) => void }) {
  const at = Math.max(0, steps.findIndex((each) => each.number >= current));
  const [range, set] = useState({ from: Math.max(0, at - AROUND), to: Math.min(steps.length, at + AROUND) });
  useEffect(() => {
    set((before) => (at >= before.from && at < before.to ? { from: before.from, to: Math.max(before.to, Math.min(steps.length, before.from + 2 * AROUND)) } : { from: Math.max(0, at - AROUND), to: at + AROUND }));
  }, [at, steps.length]);
  const linked = useRef(false);
  useEffect(() => {
    if (linked.current || !fragment.value.startsWith("s")) return;
    const place = document.getElementById(fragment.value);
    if (!place) return;
    linked.current = true;
    place.scrollIntoView({ block: fragment.value.includes("-L") ? "center" : "start" });
  }, [steps.length, range]);
  const to = Math.min(range.to, steps.length);
  const from = Math.min(range.from, to);
  return (
    <div class="trans">
      <h2 class="vh">Transcript</h2>
      {from > 0 && <Gap steps={steps.slice(0, from)} open={() => set({ from: Math.max(0, from - AROUND), to })} />}
      {steps.slice(from, to).map((each) => (
        <StepView key={each.number} step={each} on={each.number === current && current > 1} find={find} whole={whole} agent={detail.trial.agent} />
      ))}
      {to < steps.length && <Gap steps={steps.slice(to)} open={() => set({ from, to: Math.min(steps.length, to + AROUND) })} auto />}
      {detail.live && (
        <p class="thk" role="status">
          <i class="spin" aria-hidden="true" />
          <b>{detail.live.phase}</b> <span>the trial is still running</span>
        </p>
      )}
    </div>
  );
}

/** Steps that are not in the document; those below come by themselves when they are reached. */
function Gap({ steps, open, auto }: { steps: Step[]; open: () => void; auto?: boolean }) {
  const place = useRef<HTMLDivElement>(null);
  const latest = useRef(open);
  latest.current = open;
  useEffect(() => {
    if (!auto || !place.current) return;
    const watch = new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && latest.current(), { rootMargin: "1500px" });
    watch.observe(place.current);
    return () => watch.disconnect();
  }, [auto, steps.length]);
  const seconds = steps.reduce((sum, each) => sum + (each.seconds ?? 0), 0);
  const first = steps[0]?.number;
  const last = steps[steps.length - 1]?.number;
  return (
    <div class="gap2" ref={place}>
      <button type="button" class="btn quiet sm" onClick={open}>
        Steps {first}–{last} are folded
      </button>
      <span>
        {many(steps.length, "step")} · {duration(seconds)}
      </span>
    </div>
  );
}

function NoTranscript({ detail }: { detail: TrialDetail }) {
  const logs = useLogs(detail.run.id, detail.trial.index);
  const live = logs.data?.logs.find((each) => each.live);
  if (detail.live && live) return <Follow run={detail.run.id} index={detail.trial.index} name={live.name} />;
  return (
    <Empty title={detail.live ? "The trial runs; it has written no transcript yet." : "This trial has no transcript."}>
      {detail.trial.agent ? `The agent ${detail.trial.agent} writes none. ` : ""}Its output is under Logs, what the tests said under Verifier.
    </Empty>
  );
}

function PhoneBar({ numbers, current, failures, move }: { numbers: number[]; current: number; failures: number[]; move: (number: number | undefined) => void }) {
  const before = [...numbers].reverse().find((each) => each < current);
  const after = numbers.find((each) => each > current);
  return (
    <div class="phonebar phone-only">
      <button type="button" class="btn" disabled={before === undefined} onClick={() => move(before)}>
        <Glyph name="left" />
        {before ?? ""}
        <span class="vh">previous step</span>
      </button>
      <span>
        step <b>{current}</b> of {numbers[numbers.length - 1]}
      </span>
      {failures.length > 0 && (
        <button type="button" class="btn" onClick={() => move(failures.find((each) => each > current) ?? failures[0])}>
          <Glyph name="cross" />
          Next failure
        </button>
      )}
      <button type="button" class="btn" disabled={after === undefined} onClick={() => move(after)}>
        {after ?? ""}
        <Glyph name="right" />
        <span class="vh">next step</span>
      </button>
    </div>
  );
}
