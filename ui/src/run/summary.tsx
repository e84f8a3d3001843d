// Score, outcomes, progress and budget of a run of tasks.
import { apart as distinct, count, dollars, interval, known, percent, tokens } from "../format";
import { blameOf, nameOf, NOT_SCORED, SCORED } from "../outcomes";
import { Interval, Meter, Scale, Sign } from "../parts/marks";
import { part } from "../router";
import type { RunDetail } from "../types";

const sum = (run: RunDetail, names: string[]): number => names.reduce((total, each) => total + (run.counts[each] ?? 0), 0);

function ScoreBox({ run }: { run: RunDetail }) {
  const { score } = run;
  if (!score && run.scores?.length) return <ScoresBox run={run} />;
  if (!score) {
    return (
      <div class="box">
        <div class="in">
          <h3>Score</h3>
          <p class="dim">Nothing has been scored yet.</p>
        </div>
      </div>
    );
  }
  const { scored, passed, errors: apart } = run;
  const open = run.done < run.total;
  return (
    <div class="box">
      <div class="in">
        <h3>
          Score <small>{open ? "so far, " : ""}by task</small>
        </h3>
        <div class="bigiv">
          <Interval value={score.value} low={score.low} high={score.high} big />
        </div>
        <Scale />
        <dl class="three">
          <div>
            <dt>pass rate</dt>
            <dd>{percent(score.pass_rate ?? score.value)}</dd>
          </div>
          <div>
            <dt>95 % interval</dt>
            <dd>{interval(score.low, score.high) || "–"}</dd>
          </div>
          <div>
            <dt>rollouts passed</dt>
            <dd>
              {count(passed)} of {count(scored)}
            </dd>
          </div>
        </dl>
        {apart > 0 && <p class="hint">{count(apart)} trials are not in the score.</p>}
      </div>
    </div>
  );
}

const MOST_SCORES = 6;

function ScoresBox({ run }: { run: RunDetail }) {
  const scores = run.scores ?? [];
  const names = distinct(scores.map((each) => each.label));
  return (
    <div class="box">
      <div class="in">
        <h3>
          Scores <small>{run.done < run.total ? "so far, " : ""}with 95 % intervals</small>
        </h3>
        <div class="scorelist">
          {scores.slice(0, MOST_SCORES).map((each, at) => (
            <div key={each.label}>
              <span class="trunc" title={each.label}>
                {names[at]}
              </span>
              <Interval value={each.value} low={each.low} high={each.high} />
              <span class="n">
                <b>{percent(each.value)}</b> <small>{interval(each.low, each.high)}</small>
              </span>
            </div>
          ))}
        </div>
        {scores.length > MOST_SCORES && <p class="hint">And {scores.length - MOST_SCORES} more under Results.</p>}
        <p class="hint">Overlapping intervals do not say that two are equal: Results has the paired comparison.</p>
      </div>
    </div>
  );
}

function Outcomes({ run }: { run: RunDetail }) {
  const base = `/runs/${part(run.id)}/trials?outcome=`;
  const one = (name: string) => (
    <a key={name} class="oc" href={base + name} title={`show only ${nameOf(name)}`}>
      <Sign outcome={name} />
      <b>{count(run.counts[name])}</b> <span>{nameOf(name)}</span>
    </a>
  );
  const found = (names: string[]): string[] => names.filter((each) => run.counts[each]);
  const { scored, passed, errors: apart } = run;
  const other = sum(run, ["cancelled", "skipped"]);
  const left = run.running + run.pending;
  const partial = run.counts.partial ?? 0;
  const bars: [number, string][] = [
    [passed, "var(--pass)"],
    [partial, "var(--good)"],
    [scored - passed - partial, "color-mix(in srgb,var(--bad) 55%,var(--surface))"],
    [apart, "var(--hatch),var(--apart-bg)"],
    [run.running, "var(--accent)"],
    [run.pending + other, "var(--surface-3)"],
  ];
  return (
    <div class="box">
      <div class="in">
        <h3>Outcomes</h3>
        <div class="stack" role="img" aria-label={`${scored} in the score, ${apart} apart, ${left} open`}>
          {bars.filter(([number]) => number > 0).map(([number, color]) => <i key={color} style={{ "--v": String(number), "--c": color }} />)}
        </div>
        <div class="blame">
          <span class="bl">
            in the score <b>{count(scored)}</b>
          </span>
          <span>{found(SCORED).map(one)}</span>
          {apart > 0 && (
            <>
              <span class="bl">
                apart <b>{count(apart)}</b>
              </span>
              <span>
                {found(NOT_SCORED).map((name) => (
                  <span key={name} title={`blame: ${blameOf(name)}`}>
                    {one(name)}
                  </span>
                ))}
              </span>
            </>
          )}
          {left + other > 0 && (
            <>
              <span class="bl">
                open <b>{count(left)}</b>
              </span>
              <span>
                {run.running > 0 && (
                  <a class="oc" href={`/runs/${part(run.id)}/trials?state=running`}>
                    <Sign outcome={null} state="running" />
                    <b>{count(run.running)}</b> <span>running</span>
                  </a>
                )}
                {run.pending > 0 && (
                  <a class="oc" href={`/runs/${part(run.id)}/trials?state=pending`}>
                    <Sign outcome={null} state="pending" />
                    <b>{count(run.pending)}</b> <span>waiting</span>
                  </a>
                )}
                {found(["cancelled", "skipped"]).map(one)}
              </span>
            </>
          )}
        </div>
      </div>
    </div>
  );
}

function Line({ name, part: spent, whole, text }: { name: string; part: number; whole: number | null | undefined; text: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{known(whole) ? <Meter part={spent} whole={whole} tall label={`${name}: ${text}`} tone={spent >= whole && name !== "trials" ? "warn" : ""} /> : <span class="dim">no limit</span>}</dd>
      <dd class="n">{text}</dd>
    </div>
  );
}

function Budget({ run }: { run: RunDetail }) {
  const limit = (name: string): number | null => run.budget?.[name] ?? run.budget?.[name.replace("budget_", "")] ?? null;
  const usd = limit("usd") ?? limit("budget_usd");
  const most = limit("tokens") ?? limit("budget_tokens");
  return (
    <div class="box">
      <div class="in">
        <h3>Progress and budget</h3>
        <dl class="pb">
          <Line name="trials" part={run.done} whole={run.total} text={`${count(run.done)} of ${count(run.total)}`} />
          {(known(usd) || run.cost_usd !== null) && <Line name="cost" part={run.cost_usd ?? 0} whole={usd} text={`${run.unknown_cost ? "≥ " : ""}${dollars(run.cost_usd ?? 0)}${known(usd) ? ` of ${dollars(usd)}` : ""}`} />}
          {(known(most) || !!run.tokens) && <Line name="tokens" part={run.tokens ?? 0} whole={most} text={`${tokens(run.tokens ?? 0)}${known(most) ? ` of ${tokens(most)}` : ""}`} />}
        </dl>
        {run.unknown_cost > 0 && <p class="hint">{count(run.unknown_cost)} calls have no known price and are left out of the cost.</p>}
      </div>
    </div>
  );
}

export const Summary = ({ run }: { run: RunDetail }) => (
  <>
    <input type="checkbox" id="more" class="vh phone-only" aria-label="Show score, outcomes and budget" />
    <label for="more" class="sumline phone-only">
      {run.score ? <Interval value={run.score.value} low={run.score.low} high={run.score.high} /> : <span>Score, outcomes, budget</span>}
      <span>
        <b>{count(run.done)}</b> of {count(run.total)}
      </span>
      <i class="g g-down" aria-hidden="true" />
    </label>
    <h2 class="vh">Score, outcomes, budget</h2>
    <div class="sum">
      <ScoreBox run={run} />
      <Outcomes run={run} />
      <Budget run={run} />
    </div>
  </>
);
