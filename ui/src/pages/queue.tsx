// What waits and why, who works, and the schedules that will add more.
import { send, useResource, type Listed } from "../api";
import { bytes, count, duration, many } from "../format";
import { useLive } from "../live";
import { Act, Bones, Empty, Trouble } from "../parts/controls";
import { Badge } from "../parts/marks";
import { part } from "../router";
import { mayWrite, Page } from "../shell";
import { Schedules } from "./schedules";

interface Waiting {
  run: string;
  name: string;
  status: string;
  owner: string;
  pending: number;
  running: number;
  place: number | null;
  wanted: boolean;
  waits_s: number | null;
  reason: string;
}

interface Queue extends Listed<Waiting> {
  total?: number;
}

interface Worker {
  name: string;
  running: number;
  host?: string;
  version?: string;
  parallel?: number;
  cpus?: number;
  memory_mb?: number;
  backends?: string[];
  labels?: string[];
  draining?: boolean;
  seen_at?: number;
  silent_s?: number;
  trials: { run: string; index: number; task: string; state: string; for_s: number | null; lease_s: number | null }[];
}

export function QueuePage() {
  const queue = useResource<Queue>("/api/queue");
  const workers = useResource<Listed<Worker>>("/api/workers");
  useLive(() => {
    queue.refresh();
    workers.refresh();
  }, 1500);
  const data = queue.data;
  const waiting = data?.total ?? 0;
  const running = workers.data?.items.reduce((sum, each) => sum + each.running, 0) ?? 0;
  const oldest = Math.max(0, ...(data?.items.map((each) => each.waits_s ?? 0) ?? []));
  return (
    <Page title="Queue" css="mid">
      <div class="head">
        <div>
          <h1>Queue</h1>
          <p class="lead">{!data ? "…" : waiting ? `${many(waiting, "trial")} ${waiting === 1 ? "waits" : "wait"}, of ${many(data.items.length, "run")}.` : "Nothing waits."}</p>
        </div>
      </div>
      {queue.problem && <Trouble problem={queue.problem} retry={queue.refresh} />}
      {!data && !queue.problem && <Bones />}
      {data && (
        <dl class="tiles">
          <Tile name="waiting" value={count(waiting)} note="trials" />
          <Tile name="running" value={count(running)} note="trials" />
          <Tile name="runs" value={count(data.items.length)} />
          <Tile name="oldest waits" value={oldest ? duration(oldest) : "–"} />
        </dl>
      )}
      {data && <Next items={data.items} refresh={queue.refresh} />}
      <Workers workers={workers.data?.items} />
      <Schedules />
    </Page>
  );
}

const Tile = ({ name, value, note }: { name: string; value: string; note?: string }) => (
  <div>
    <dt>{name}</dt>
    <dd>
      {value} {note && <small>{note}</small>}
    </dd>
  </div>
);

const MOST_SLOTS = 16;

/** A box for each place, filled where a trial runs; a number where there are too many to draw. */
function Slots({ worker }: { worker: Worker }) {
  const places = Math.max(worker.parallel ?? 0, worker.running);
  const text = worker.parallel ? `${count(worker.running)} of ${count(worker.parallel)}` : count(worker.running);
  return (
    <>
      {places <= MOST_SLOTS && (
        <span class="slots" role="img" aria-label={`${text} trials`}>
          {Array.from({ length: places }, (_, at) => (
            <i key={at} class={at < worker.running ? "u" : ""} />
          ))}
        </span>
      )}
      <small> {text}</small>
    </>
  );
}

const offers = (worker: Worker): string =>
  [
    worker.cpus ? many(worker.cpus, "processor") : "",
    worker.memory_mb ? bytes(worker.memory_mb * 2 ** 20) : "",
    ...(worker.backends ?? []),
    ...(worker.labels ?? []).map((each) => `label ${each}`),
  ]
    .filter(Boolean)
    .join(", ") || "–";

const lastSeen = (worker: Worker): string => {
  const ago = worker.silent_s ?? (worker.seen_at ? Date.now() / 1000 - worker.seen_at : null);
  return ago === null ? "–" : ago < 2 ? "now" : `${duration(ago)} ago`;
};

function Workers({ workers }: { workers: Worker[] | undefined }) {
  if (!workers) return null;
  const described = workers.some((each) => each.host !== undefined);
  return (
    <section>
      <div class="h2">
        <h2>Workers</h2>
        <small>{workers.length ? count(workers.length) : ""}</small>
      </div>
      {workers.length === 0 ? (
        <Empty title="Nobody works at the moment.">The server executes runs itself as soon as one is queued.</Empty>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Workers">
          <table class="wk">
            <thead>
              <tr>
                <th>name</th>
                <th>running</th>
                {described && <th class="phone-off">can execute</th>}
                {described && <th class="n">last seen</th>}
                <th class="n">lease</th>
                <th>now</th>
              </tr>
            </thead>
            <tbody>
              {workers.map((each) => (
                <tr key={each.name}>
                  <td class="top2 nw" title={each.name}>
                    {each.name.split(":").slice(0, 2).join(" ")} {each.draining && <Badge tone="warn">draining</Badge>}
                    {each.host && <span class="sub">{[each.host, each.version && `version ${each.version}`].filter(Boolean).join(", ")}</span>}
                  </td>
                  <td class="nw">
                    <Slots worker={each} />
                  </td>
                  {described && <td class="phone-off dim">{offers(each)}</td>}
                  {described && <td class="n nw">{lastSeen(each)}</td>}
                  <td class="n nw">{each.trials.length ? duration(Math.min(...each.trials.map((one) => one.lease_s ?? Infinity))) : "–"}</td>
                  <td>
                    {each.trials.slice(0, 3).map((one, at) => (
                      <>
                        {at > 0 && ", "}
                        <a href={`/trials/${part(one.run)}/${one.index}`}>{one.task}</a> <small>{duration(one.for_s)}</small>
                      </>
                    ))}
                    {each.trials.length > 3 && <small>, {each.trials.length - 3} more</small>}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <p class="cap">
        More machines: <code>proctor worker</code>. A lease ends when a worker stops answering; its trials then go to another.
      </p>
    </section>
  );
}

function Next({ items, refresh }: { items: Waiting[]; refresh: () => void }) {
  if (!items.length) return null;
  return (
    <section>
      <h2>Runs that wait</h2>
      <table>
        <thead>
          <tr>
            <th class="n">#</th>
            <th>run</th>
            <th class="n">waiting</th>
            <th class="n phone-off">running</th>
            <th class="n">waits</th>
            <th class="phone-off">because</th>
            <th>
              <span class="vh">act</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {items.map((each) => (
            <tr key={each.run}>
              <td class="n">{each.place ?? "–"}</td>
              <td class="nm2">
                <a class="trunc top2" href={`/runs/${part(each.run)}`} title={each.run}>
                  {each.name}
                </a>
                {each.owner && <span class="sub">{each.owner}</span>}
              </td>
              <td class="n">{count(each.pending)}</td>
              <td class="n phone-off">{count(each.running)}</td>
              <td class="n">{duration(each.waits_s)}</td>
              <td class="phone-off dim">{each.reason}</td>
              <td class="n">
                {mayWrite() && each.wanted && (
                  <Act css="sm quiet" act={() => send("POST", `/api/runs/${part(each.run)}/pause`, {})} then={refresh}>
                    Pause
                  </Act>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="cap">Runs take turns, so a large run cannot hold up a small one. A run of experiments runs alone, because timings beside other work mislead.</p>
    </section>
  );
}
