// What an administrator sees in the settings: users, projects with their members, webhooks, and who did what.
import { useState } from "preact/hooks";
import { send, useResource, type Listed } from "../api";
import { count, dollars, many, when } from "../format";
import { Act, Command, confirm, Empty, Trouble } from "../parts/controls";
import { Badge } from "../parts/marks";
import { useList } from "../parts/window";
import { part } from "../router";

interface User {
  id: string;
  created_at: number;
  disabled: boolean;
}

export function Users() {
  const found = useResource<Listed<User>>("/api/users?limit=500");
  const items = found.data?.items ?? [];
  return (
    <section id="users">
      <div class="h2">
        <h2>Users</h2>
        <small>a user is made with the first token for them</small>
      </div>
      {found.problem && <Trouble problem={found.problem} retry={found.refresh} />}
      {found.data && !items.length && <Empty title="There are no users.">Make a token for somebody.</Empty>}
      {items.length > 0 && (
        <table>
          <thead>
            <tr>
              <th>name</th>
              <th class="n">since</th>
              <th>
                <span class="vh">act</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {items.map((each) => (
              <tr key={each.id}>
                <td class={`top2 ${each.disabled ? "dim" : ""}`}>
                  {each.id} {each.disabled && <Badge>disabled</Badge>}
                </td>
                <td class="n">{when(each.created_at)}</td>
                <td class="n">
                  <Act css="sm" act={() => send("PATCH", `/api/users/${part(each.id)}`, { disabled: !each.disabled })} then={found.refresh}>
                    {each.disabled ? "Enable" : "Disable"}
                  </Act>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

interface Project {
  id: string;
  title: string;
  max_runs: number | null;
  day_usd: number | null;
  keep_days: number | null;
  open_runs: number;
  spent_today_usd: number;
}

const NUMBERS: ["max_runs" | "day_usd" | "keep_days", string, string][] = [
  ["max_runs", "Runs at a time", "no limit"],
  ["day_usd", "Dollars a day", "no limit"],
  ["keep_days", "Days to keep runs", "for good"],
];

function ProjectForm({ project, done }: { project: Project | null; done: () => void }) {
  const [id, name] = useState(project?.id ?? "");
  const [title, call] = useState(project?.title ?? "");
  const [limits, set] = useState<Record<string, string>>(Object.fromEntries(NUMBERS.map(([key]) => [key, project?.[key] === null || project === null ? "" : String(project[key])])));
  const key = project?.id ?? "new";
  const body = (): Record<string, unknown> => ({ title: title || id, ...Object.fromEntries(NUMBERS.map(([each]) => [each, limits[each] ? Number(limits[each]) : null])) });
  return (
    <div class="box">
      <div class="in stackx">
        <div class="formrow">
          {!project && (
            <div class="field">
              <label for="project-id">Short name</label>
              <input id="project-id" value={id} onInput={(event) => name(event.currentTarget.value)} placeholder="nightly" />
            </div>
          )}
          <div class="field">
            <label for={`project-title-${key}`}>Title</label>
            <input id={`project-title-${key}`} value={title} onInput={(event) => call(event.currentTarget.value)} placeholder="Nightly suites" />
          </div>
        </div>
        <div class="formrow">
          {NUMBERS.map(([each, label, none]) => (
            <div class="field" key={each}>
              <label for={`project-${each}-${key}`}>{label}</label>
              <input id={`project-${each}-${key}`} inputMode="decimal" value={limits[each]} placeholder={none} onInput={(event) => set({ ...limits, [each]: event.currentTarget.value })} />
            </div>
          ))}
        </div>
        <p class="acts start">
          <Act css="main" act={() => send("PUT", `/api/projects/${part(id)}`, body())} then={done}>
            {project ? "Save" : "Make project"}
          </Act>
        </p>
        {project && <Members project={project.id} />}
      </div>
    </div>
  );
}

function Members({ project }: { project: string }) {
  const base = `/api/projects/${part(project)}/members`;
  const found = useResource<Listed<{ user: string }>>(base);
  const [user, set] = useState("");
  if (found.problem) return null;
  return (
    <div>
      <h3>Members</h3>
      <div class="trial-labels">
        {found.data?.items.map((each) => (
          <span class="tag" key={each.user}>
            {each.user}{" "}
            <Act css="quiet sm" act={() => send("DELETE", `${base}/${part(each.user)}`)} then={found.refresh}>
              Take out
            </Act>
          </span>
        ))}
        {found.data && !found.data.items.length && <span class="dim">Nobody yet; a token names its project itself.</span>}
      </div>
      <div class="formrow tokbox">
        <div class="field">
          <label for={`member-${project}`}>User</label>
          <input id={`member-${project}`} value={user} onInput={(event) => set(event.currentTarget.value)} placeholder="ada" />
        </div>
        <Act
          act={() => send("PUT", `${base}/${part(user)}`)}
          then={() => {
            set("");
            found.refresh();
          }}
        >
          Add member
        </Act>
      </div>
    </div>
  );
}

export function Projects() {
  const found = useResource<Listed<Project>>("/api/projects?limit=500");
  const [open, unfold] = useState("");
  const items = found.data?.items ?? [];
  const done = (): void => {
    unfold("");
    found.refresh();
  };
  return (
    <section id="projects">
      <div class="h2">
        <h2>Projects</h2>
        <small>runs, keys and tokens of one are not seen by another</small>
        <div class="acts">
          <button type="button" class="btn sm" aria-expanded={open === "+"} onClick={() => unfold(open === "+" ? "" : "+")}>
            New project
          </button>
        </div>
      </div>
      {open === "+" && <ProjectForm project={null} done={done} />}
      {found.problem && <Trouble problem={found.problem} retry={found.refresh} />}
      {items.length > 0 && (
        <table>
          <thead>
            <tr>
              <th>project</th>
              <th class="n">runs</th>
              <th class="n">spent today</th>
              <th class="n phone-off">kept</th>
              <th>
                <span class="vh">act</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {items.map((each) => (
              <tr key={each.id}>
                <td class="top2">
                  {each.title} {each.title !== each.id && <small>{each.id}</small>}
                </td>
                <td class="n">
                  {count(each.open_runs)}
                  {each.max_runs !== null && ` of ${count(each.max_runs)}`}
                </td>
                <td class="n">
                  {dollars(each.spent_today_usd)}
                  {each.day_usd !== null && ` of ${dollars(each.day_usd)}`}
                </td>
                <td class="n phone-off">{each.keep_days === null ? "for good" : many(each.keep_days, "day")}</td>
                <td class="n">
                  <button type="button" class="btn sm" aria-expanded={open === each.id} onClick={() => unfold(open === each.id ? "" : each.id)}>
                    Change
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {items.filter((each) => each.id === open).map((each) => <ProjectForm key={each.id} project={each} done={done} />)}
    </section>
  );
}

interface Webhook {
  id: string;
  url: string;
  kind: string;
  events: string[];
  enabled: boolean;
  last_at: number | null;
  last_status: string | number | null;
}

const EVENTS: [string, string][] = [["run.queued", "is queued"], ["run.started", "starts"], ["run.finished", "ends"], ["run.judged", "is judged"], ["run.paused", "is paused"], ["run.interrupted", "is interrupted"], ["run.cancelled", "is cancelled"], ["run.failed", "cannot be run"]];

function WebhookForm({ done }: { done: (secret: string) => void }) {
  const [url, set] = useState("");
  const [kind, choose] = useState("event");
  const [events, tell] = useState(["run.finished", "run.failed"]);
  const [secret, hide] = useState("");
  const comment = kind === "comment";
  const add = async (): Promise<void> => {
    const made = await send<{ secret?: string }>("POST", "/api/webhooks", { url, kind, ...(comment ? {} : { events }), ...(secret ? { secret } : {}) });
    done(made.secret ?? "");
  };
  return (
    <div class="box">
      <div class="in stackx">
        <div class="formrow">
          <div class="field">
            <label for="hook-url">Address</label>
            <input id="hook-url" type="url" value={url} onInput={(event) => set(event.currentTarget.value)} placeholder="https://example.org/proctor" />
          </div>
          <div class="field">
            <label for="hook-kind">What is sent</label>
            <select id="hook-kind" value={kind} onChange={(event) => choose(event.currentTarget.value)}>
              <option value="event">A signed event</option>
              <option value="comment">The verdict, as a comment of a pull request</option>
            </select>
          </div>
          <div class="field">
            <label for="hook-secret">{comment ? "Token of that server" : "Secret"}</label>
            <input id="hook-secret" type="password" autocomplete="off" value={secret} onInput={(event) => hide(event.currentTarget.value)} placeholder={comment ? "" : "empty: one is made"} />
          </div>
        </div>
        {!comment && (
          <fieldset class="picks">
            <legend class="lab">When a run</legend>
            {EVENTS.map(([name, title]) => (
              <label class="pick" key={name}>
                <input type="checkbox" checked={events.includes(name)} onChange={() => tell(events.includes(name) ? events.filter((each) => each !== name) : [...events, name])} /> {title}
              </label>
            ))}
          </fieldset>
        )}
        <p class="acts start">
          <Act css="main" act={add}>
            Add webhook
          </Act>
        </p>
      </div>
    </div>
  );
}

export function Webhooks() {
  const found = useResource<Listed<Webhook>>("/api/webhooks?limit=200");
  const [open, unfold] = useState(false);
  const [secret, show] = useState("");
  const items = found.data?.items ?? [];
  return (
    <section id="webhooks">
      <div class="h2">
        <h2>Webhooks</h2>
        <small>addresses that are told when something happens to a run</small>
        <div class="acts">
          <button type="button" class="btn sm" aria-expanded={open} onClick={() => unfold(!open)}>
            New webhook
          </button>
        </div>
      </div>
      {secret && (
        <div class="notice info">
          <h3>This secret signs the events. Copy it now: it is shown this once.</h3>
          <Command text={secret} />
        </div>
      )}
      {open && (
        <WebhookForm
          done={(made) => {
            unfold(false);
            show(made);
            found.refresh();
          }}
        />
      )}
      {found.problem && <Trouble problem={found.problem} retry={found.refresh} />}
      {found.data && !items.length && !open && <Empty title="Nobody is told." />}
      {items.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Webhooks">
          <table>
            <thead>
              <tr>
                <th>address</th>
                <th class="phone-off">when a run</th>
                <th class="phone-off">last</th>
                <th>
                  <span class="vh">act</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {items.map((each) => (
                <tr key={each.id}>
                  <td class="top2 wrapany">
                    {each.url} {!each.enabled && <Badge>off</Badge>}
                  </td>
                  <td class="phone-off">{each.kind === "comment" ? "is judged: a comment" : each.events.map((name) => EVENTS.find(([event]) => event === name)?.[1] ?? name).join(", ")}</td>
                  <td class="phone-off dim">{each.last_at ? `${each.last_status ?? ""} ${when(each.last_at)}` : "never told"}</td>
                  <td class="n">
                    <span class="acts">
                      <Act css="sm" act={() => send("POST", `/api/webhooks/${part(each.id)}/test`)} then={found.refresh}>
                        Test
                      </Act>
                      <Act css="sm" act={() => send("PATCH", `/api/webhooks/${part(each.id)}`, { enabled: !each.enabled })} then={found.refresh}>
                        {each.enabled ? "Switch off" : "Switch on"}
                      </Act>
                      <button
                        type="button"
                        class="btn sm danger"
                        onClick={() =>
                          confirm({
                            title: "Remove this webhook?",
                            text: <p>{each.url} is told nothing more.</p>,
                            yes: "Remove it",
                            act: () => void send("DELETE", `/api/webhooks/${part(each.id)}`).then(found.refresh),
                          })
                        }
                      >
                        Remove
                      </button>
                    </span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

interface Entry {
  id: number;
  at: number;
  actor: string;
  action: string;
  target: string;
  project?: string | null;
}

export function Audit() {
  const found = useList<Entry>("/api/audit", 20);
  return (
    <section id="audit">
      <div class="h2">
        <h2>Audit</h2>
        <small>every change through this server, newest first</small>
      </div>
      {found.problem && <Trouble problem={found.problem} retry={found.refresh} />}
      {!found.loading && !found.rows.length && !found.problem && <Empty title="Nothing has been changed yet." />}
      {found.rows.length > 0 && (
        <table>
          <thead>
            <tr>
              <th>when</th>
              <th>who</th>
              <th>did</th>
              <th>to what</th>
            </tr>
          </thead>
          <tbody>
            {found.rows.map((each) => (
              <tr key={each.id}>
                <td>{when(each.at)}</td>
                <td>{each.actor}</td>
                <td>{each.action.replaceAll(".", " ").replaceAll("_", " ")}</td>
                <td class="mono wrapany">{each.target}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {found.rows.length >= 20 && (
        <p class="acts start">
          <button type="button" class="btn sm" onClick={found.more}>
            Older
          </button>
        </p>
      )}
    </section>
  );
}
