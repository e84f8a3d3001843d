// A new run: the spec from a form or by hand, and what it will take before anything is spent.
import { useEffect, useMemo, useState } from "preact/hooks";
import { asProblem, send, useResource, type Listed, type Problem } from "../api";
import { about, count, dollars, duration, many } from "../format";
import { Act, copy, Trouble } from "../parts/controls";
import { Terminal } from "../parts/terminal";
import { part, query } from "../router";
import { Page, session } from "../shell";
import type { RunDetail } from "../types";

interface Plan {
  trials: number;
  by?: Record<string, Record<string, number>>;
  seconds: { low: number; mid: number; high: number } | null;
  cost_usd: { low: number; mid: number; high: number } | null;
  unknown_prices: string[];
  /** Tasks of which no earlier run tells the cost. */
  uncosted: string[];
  warnings: string[];
  errors: { where: string; message: string }[] | string[];
}

interface Form {
  name: string;
  tasks: string[];
  agents: string[];
  models: string[];
  rollouts: string;
  budget: string;
  parallel: string;
  own: boolean;
}

interface Named {
  name: string;
  id?: string;
  about?: string;
}

const named = (found: unknown): Named[] => {
  const list = Array.isArray(found) ? found : ((found as { items?: unknown[] } | undefined)?.items ?? []);
  return (list as (string | Named)[]).map((each) => (typeof each === "string" ? { name: each } : { ...each, name: each.id ?? each.name, about: each.id ? each.name : "" }));
};

function specOf(form: Form, upload: string): Record<string, unknown> {
  const one = (list: string[]): string | string[] => (list.length === 1 ? (list[0] ?? "") : list);
  const places: unknown[] = upload ? [{ upload }] : form.tasks.map((task) => ({ task }));
  const body = (path: unknown): Record<string, unknown> => ({
    path,
    agent: one(form.agents),
    ...(form.models.length ? { model: one(form.models) } : {}),
    rollouts: Number(form.rollouts) || 1,
  });
  return {
    name: form.name || "new-run",
    ...(Number(form.budget) ? { budget_usd: Number(form.budget) } : {}),
    ...(Number(form.parallel) ? { parallel: Number(form.parallel) } : {}),
    ...(form.own ? { sandbox: { host_root: true } } : {}),
    tasks: places.map(body),
  };
}

const entriesOf = (run: RunDetail): Record<string, unknown>[] => ((run.spec as { tasks?: Record<string, unknown>[] } | null)?.tasks ?? []);

/** A spec of the command line has one entry with a path of its machine; a server takes stored tasks. */
const namesPaths = (run: RunDetail): boolean => entriesOf(run).length === 1 && entriesOf(run).some((each) => "dataset" in each || typeof each.path === "string");

function again(run: RunDetail, tasks: string[]): string {
  if (typeof run.spec === "string") return run.spec;
  if (!tasks.length) return JSON.stringify(run.spec, null, 2);
  const { dataset: _, include: __, exclude: ___, path: ____, ...rest } = entriesOf(run)[0] ?? {};
  return JSON.stringify({ ...(run.spec as object), tasks: tasks.map((task) => ({ path: { task }, ...rest })) }, null, 2);
}

export function NewRun() {
  const upload = query.value.get("upload") ?? "";
  const from = query.value.get("from") ?? "";
  const [form, set] = useState<Form>({ name: "", tasks: query.value.get("task") ? [query.value.get("task") ?? ""] : [], agents: ["oracle"], models: [], rollouts: "1", budget: "", parallel: "", own: false });
  const [text, write] = useState<string | null>(null);
  const old = useResource<RunDetail>(from ? `/api/runs/${part(from)}` : "");
  const was = useResource<{ rows: { task: string }[] }>(old.data && namesPaths(old.data) ? `/api/runs/${part(from)}/matrix` : "");
  useEffect(() => {
    if (old.data && (was.data || was.problem || !namesPaths(old.data))) write(again(old.data, was.data?.rows.map((each) => each.task) ?? []));
  }, [old.data, was.data, was.problem]);
  const spec = useMemo(() => (text === null ? specOf(form, upload) : text), [form, text, upload]);
  const ready = text !== null ? text.trim() !== "" : (!!upload || form.tasks.length > 0) && form.agents.length > 0;
  const { plan, problem } = usePlan(ready ? spec : null);
  const wrong = (plan?.errors ?? []).map((each) => (typeof each === "string" ? each : each.message).replace(/^spec:/, ""));
  const shown = text ?? JSON.stringify(spec, null, 2);
  return (
    <Page title="New run" css="mid">
      <div class="head">
        <div>
          <h1>New run</h1>
          <p class="lead">{sentence(plan, ready)}</p>
        </div>
        <div class="acts">
          <span class="seg" role="group" aria-label="How to write the spec">
            <button type="button" aria-pressed={text === null} onClick={() => write(null)}>
              Form
            </button>
            <button type="button" aria-pressed={text !== null} onClick={() => write(shown)}>
              Spec
            </button>
          </span>
        </div>
      </div>
      <div class="nr">
        <div>
          {text === null ? (
            <FormFields form={form} set={set} upload={upload} />
          ) : (
            <div class="field">
              <label for="spec">Spec, as JSON, YAML or TOML</label>
              <textarea id="spec" class="spec" spellcheck={false} value={text} onInput={(event) => write(event.currentTarget.value)} />
              <p class="hint">
                Tasks are named as <code>{'{"upload": ID}'}</code> or <code>{'{"task": NAME}'}</code> in <code>path</code>. Experiments are code of this machine and need a token that may run code.
              </p>
            </div>
          )}
          {problem && <Trouble problem={problem} />}
          {wrong.length > 0 && (
            <div class="notice bad" role="alert">
              <h2>This cannot run yet</h2>
              <ul>
                {wrong.map((each) => (
                  <li key={each}>{each}</li>
                ))}
              </ul>
            </div>
          )}
          <div class="fend">
            <Act css="main" off={!ready || wrong.length > 0} act={() => send<RunDetail>("POST", "/api/runs", { spec }).then((run) => history.replaceState(null, "", `/runs/${part(run.id)}`))} then={() => location.assign(location.pathname)}>
              Start run
            </Act>
            <span class="dim">{ready ? "Nothing is spent before you start." : "Choose a task and an agent first."}</span>
          </div>
        </div>
        <Estimate plan={plan} ready={ready} spec={text === null ? shown : ""} budget={Number(form.budget) || null} />
      </div>
    </Page>
  );
}

function usePlan(spec: unknown): { plan: Plan | undefined; problem: Problem | undefined } {
  const [state, set] = useState<{ plan: Plan | undefined; problem: Problem | undefined }>({ plan: undefined, problem: undefined });
  const key = JSON.stringify(spec);
  useEffect(() => {
    if (spec === null) {
      set({ plan: undefined, problem: undefined });
      return;
    }
    let gone = false;
    const timer = setTimeout(() => {
      send<Plan>("POST", "/api/plan", { spec }).then(
        (plan) => !gone && set({ plan, problem: undefined }),
        (error: unknown) => !gone && set({ plan: undefined, problem: asProblem(error) }),
      );
    }, 350);
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [key]);
  return state;
}

function spanOf(found: { low: number; high: number }, show: (value: number) => string, between = " – "): string {
  const [low, high] = [show(found.low), show(found.high)];
  return low === high ? low : low + between + high;
}

/** A model is asked, and nothing tells what that costs. */
const uncosted = (plan: Plan): boolean => plan.unknown_prices.length + plan.uncosted.length > 0;

function sentence(plan: Plan | undefined, ready: boolean): string {
  if (!ready) return "Choose tasks and agents; the estimate follows as you choose.";
  if (!plan) return "Working out what it takes.";
  if (plan.errors.length) return "This cannot run yet: below is what is missing.";
  const time = plan.seconds ? `about ${about(plan.seconds.mid)}` : "a time that is not known yet";
  const cost = plan.cost_usd ? (plan.cost_usd.high > 0 ? spanOf(plan.cost_usd, dollars, " to ") : "no cost") : uncosted(plan) ? "a cost that is not known" : "no cost";
  return `${many(plan.trials, "trial")}: ${time}, and ${cost}. Nothing is spent before you start.`;
}

function FormFields({ form, set, upload }: { form: Form; set: (form: Form) => void; upload: string }) {
  const tasks = useResource<Listed<Named>>("/api/stored-tasks");
  const uploads = useResource<Listed<{ id: string; name: string; task?: string; description?: string }>>(upload ? "/api/uploads?limit=50" : "");
  const uploaded = uploads.data?.items.find((each) => each.id === upload);
  const agents = useResource<unknown>("/api/agents");
  const models = useResource<unknown>("/api/models");
  const change = (more: Partial<Form>): void => set({ ...form, ...more });
  const toggle = (list: string[], name: string): string[] => (list.includes(name) ? list.filter((each) => each !== name) : [...list, name]);
  const input = (name: "name" | "rollouts" | "budget" | "parallel", label: string, hint: string, wrong = false) => (
    <div class={`field ${wrong ? "err" : ""}`}>
      <label for={`f-${name}`}>{label}</label>
      <input id={`f-${name}`} value={form[name]} inputMode={name === "name" ? "text" : "decimal"} aria-invalid={wrong} placeholder={name === "name" ? "new-run" : ""} onInput={(event) => change({ [name]: event.currentTarget.value })} />
      <p class="hint">{hint}</p>
    </div>
  );
  const bad = (text: string): boolean => text !== "" && !(Number(text) > 0);
  const known = named(tasks.data);
  return (
    <form onSubmit={(event) => event.preventDefault()}>
      <fieldset>
        <legend>What to run</legend>
        {input("name", "Name", "Runs of the same name are one series in the history.")}
        <div>
          <div class="field">
            <span class="lab">Tasks</span>
            {upload ? (
              <p>
                {uploaded?.task ?? uploaded?.name ?? <code>{upload}</code>} <span class="dim">{uploaded?.description}</span>
              </p>
            ) : (
              <div class="picks beside">
                {known.map((each) => (
                  <label key={each.name} class="pick">
                    <input type="checkbox" checked={form.tasks.includes(each.name)} onChange={() => change({ tasks: toggle(form.tasks, each.name) })} /> {each.name}
                  </label>
                ))}
                {tasks.data && !known.length && (
                  <p class="hint">
                    None is stored yet. <a href="/tasks">Add one</a>.
                  </p>
                )}
              </div>
            )}
          </div>
        </div>
        <div>
          <div class="field">
            <span class="lab">Agents</span>
            <div class="picks beside">
              {named(agents.data).map((each) => (
                <label key={each.name} class="pick">
                  <input type="checkbox" checked={form.agents.includes(each.name)} onChange={() => change({ agents: toggle(form.agents, each.name) })} /> <span class="nm">{each.name}</span> <small>{each.about}</small>
                </label>
              ))}
            </div>
          </div>
        </div>
        <div class="f2">
          {input("rollouts", "Rollouts of each task", "How often each agent tries each task. More tell smaller differences apart.", bad(form.rollouts))}
          <div class="field">
            <label for="f-models">Models</label>
            <input id="f-models" list="known-models" value={form.models.join(", ")} onInput={(event) => change({ models: event.currentTarget.value.split(",").map((each) => each.trim()).filter(Boolean) })} placeholder="openai/gpt-5.2, …" />
            <datalist id="known-models">
              {named(models.data).map((each) => (
                <option key={each.name} value={each.name} />
              ))}
            </datalist>
            <p class="hint">Empty for agents that need none, such as the oracle.</p>
          </div>
        </div>
      </fieldset>
      <fieldset>
        <legend>Where and how much</legend>
        {session.value?.scopes?.includes("code") && (
          <div class="picks">
            <label class="pick">
              <input type="checkbox" checked={form.own} onChange={() => change({ own: !form.own })} /> <span class="nm">Use this machine’s system</span> <small>in place of the tasks’ images: needs no network, and is not reproducible elsewhere</small>
            </label>
          </div>
        )}
        <div class="f2">
          {input("budget", "Budget, dollars", bad(form.budget) ? `A number of dollars, such as 80. “${form.budget}” is none.` : "The run stops there and keeps what it has.", bad(form.budget))}
          {input("parallel", "At a time", bad(form.parallel) ? "A whole number." : "Empty: as many as the machine has cores for.", bad(form.parallel))}
        </div>
      </fieldset>
    </form>
  );
}

function Estimate({ plan, ready, spec, budget }: { plan: Plan | undefined; ready: boolean; spec: string; budget: number | null }) {
  return (
    <aside class="est" aria-label="Estimate">
      <div class="box">
        <header>
          <h2>Estimate</h2>
        </header>
        <div class="in">
          {!plan ? (
            <p class="dim">{ready ? "Working it out." : "Known when tasks and agents are chosen."}</p>
          ) : (
            <dl class="el">
              <div>
                <dt>trials</dt>
                <dd>
                  <b>{count(plan.trials)}</b>
                </dd>
              </div>
              <div>
                <dt>time</dt>
                <dd>
                  <b>{plan.seconds ? spanOf(plan.seconds, duration) : "not known"}</b>
                  <small>{plan.seconds ? "from earlier runs" : "these tasks have not run here yet"}</small>
                </dd>
              </div>
              <div>
                <dt>cost</dt>
                <dd>
                  <b>{plan.cost_usd ? spanOf(plan.cost_usd, dollars) : uncosted(plan) ? "not known" : "none"}</b>
                  {plan.unknown_prices.length > 0 && <small>no price is known for {plan.unknown_prices.join(", ")}</small>}
                  {budget && plan.cost_usd && plan.cost_usd.high > budget && <small class="warn-t">may reach the budget of {dollars(budget)}</small>}
                </dd>
              </div>
            </dl>
          )}
          {plan?.warnings.map((each) => (
            <p class="hint" key={each}>
              {each}
            </p>
          ))}
        </div>
      </div>
      {spec && (
        <div class="box">
          <header>
            <h2>Spec</h2>
            <span class="end">
              <button type="button" class="btn quiet sm" onClick={() => void copy(spec)}>
                Copy
              </button>
            </span>
          </header>
          <Terminal id="plan" text={spec} bare />
        </div>
      )}
    </aside>
  );
}
