// What happens now: the terminal of one running trial, those that run, those that have just ended.
import { useEffect, useRef, useState } from "preact/hooks";
import { useResource, type Listed } from "../api";
import { duration, many } from "../format";
import { useLive } from "../live";
import { Sign } from "../parts/marks";
import { part } from "../router";
import type { RunDetail, TrialRow } from "../types";
import { Tail } from "../trial/tail";

export function Rail({ run }: { run: RunDetail }) {
  const label = (trial: TrialRow): string =>
    `${trial.task}${trial.rollout !== null ? ` #${trial.rollout + 1}` : ""}${run.agents.length > 1 ? ` · ${trial.agent}` : ""}${run.models.length > 1 ? ` · ${trial.model}` : ""}`;
  const base = `/api/runs/${part(run.id)}/trials`;
  const running = useResource<Listed<TrialRow>>(`${base}?state=running&limit=30`);
  const ended = useResource<Listed<TrialRow>>(`${base}?state=done&sort=-ended&limit=5`);
  useLive((changes) => {
    if (changes.length && !changes.some((each) => each.run === run.id)) return;
    running.refresh();
    ended.refresh();
  }, 1000);
  const [chosen, choose] = useState<number | null>(null);
  const now = useRef<TrialRow | undefined>(undefined);
  const items = running.data?.items ?? [];
  now.current = items.find((each) => each.index === chosen) ?? items[0];
  const followed = now.current;
  return (
    <aside class="rail" aria-label="Live">
      {followed && (
        <div class="box">
          <header>
            <h3>{label(followed)}</h3>
            <span class="end">
              <a class="btn quiet sm" href={`/trials/${part(run.id)}/${followed.index}`}>
                Open
              </a>
            </span>
          </header>
          <div class="in">
            <Tail run={run.id} index={followed.index} lines={9} />
          </div>
        </div>
      )}
      <div class="box">
        <header>
          <h3>Running now</h3>
          <small>{items.length ? many(items.length, "trial") : "nothing"}</small>
        </header>
        <ul class="rlist">
          {items.map((each) => (
            <li key={each.index} class={each === followed ? "on" : ""}>
              <a class="trunc" href={`/trials/${part(run.id)}/${each.index}`}>
                {label(each)}
              </a>
              <button type="button" class="btn quiet sm" onClick={() => choose(each.index)} aria-label={`Follow ${label(each)}`}>
                Follow
              </button>
              <small class="n">
                <Since at={each.started_at} />
              </small>
            </li>
          ))}
        </ul>
      </div>
      <div class="box" hidden={!ended.data?.items.length}>
        <header>
          <h3>Just ended</h3>
        </header>
        <ul class="ended">
          {ended.data?.items.map((each) => (
            <li key={each.index}>
              <Sign outcome={each.outcome} state={each.state} reward={each.reward} />
              <a class="trunc" href={`/trials/${part(run.id)}/${each.index}`}>
                {label(each)}
              </a>
              <small>{duration(each.took_s)}</small>
            </li>
          ))}
        </ul>
      </div>
    </aside>
  );
}

/** How long it has been, told every second. */
export function Since({ at }: { at: number | null }) {
  const [now, tick] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => tick(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return <>{at ? duration(Math.max(0, Math.floor(now / 1000 - at))) : "–"}</>;
}
