// What an administrator sees in the settings: users, projects with their members, and who did what.
import { useState } from "preact/hooks";
import { send, useResource, type Listed } from "../api";
import { count, dollars, many, when } from "../format";
import { Act, Empty } from "../parts/controls";
import { Listing, listOf } from "../parts/listing";
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
  return (
    <Listing
      id="users"
      title="Users"
      note="a user is made with the first token for them"
      found={listOf(found)}
      empty={<Empty title="There are no users.">Make a token for somebody.</Empty>}
      keyOf={(each) => each.id}
      columns={[
        {
          name: "name",
          css: "top2",
          cell: (each) => (
            <span class={each.disabled ? "dim" : ""}>
              {each.id} {each.disabled && <Badge>disabled</Badge>}
            </span>
          ),
        },
        { name: "since", css: "n", cell: (each) => when(each.created_at) },
        {
          name: "",
          css: "n",
          cell: (each) => (
            <Act css="sm" act={() => send("PATCH", `/api/users/${part(each.id)}`, { disabled: !each.disabled })} then={found.refresh}>
              {each.disabled ? "Enable" : "Disable"}
            </Act>
          ),
        },
      ]}
    />
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
  const turn = (id: string): void => unfold(open === id ? "" : id);
  const done = (): void => {
    unfold("");
    found.refresh();
  };
  return (
    <Listing
      id="projects"
      title="Projects"
      note="runs, keys and tokens of one are not seen by another"
      add={{ label: "New project", open: open === "+", toggle: () => turn("+") }}
      found={listOf(found)}
      keyOf={(each) => each.id}
      columns={[
        {
          name: "project",
          css: "top2",
          cell: (each) => (
            <>
              {each.title} {each.title !== each.id && <small>{each.id}</small>}
            </>
          ),
        },
        { name: "runs", css: "n", cell: (each) => `${count(each.open_runs)}${each.max_runs !== null ? ` of ${count(each.max_runs)}` : ""}` },
        { name: "spent today", css: "n", cell: (each) => `${dollars(each.spent_today_usd)}${each.day_usd !== null ? ` of ${dollars(each.day_usd)}` : ""}` },
        { name: "kept", css: "n phone-off", cell: (each) => (each.keep_days === null ? "for good" : many(each.keep_days, "day")) },
        {
          name: "",
          css: "n",
          cell: (each) => (
            <button type="button" class="btn sm" aria-expanded={open === each.id} onClick={() => turn(each.id)}>
              Change
            </button>
          ),
        },
      ]}
      after={found.data?.items.filter((each) => each.id === open).map((each) => <ProjectForm key={each.id} project={each} done={done} />)}
    >
      {open === "+" && <ProjectForm project={null} done={done} />}
    </Listing>
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
    <Listing
      id="audit"
      title="Audit"
      note="every change through this server, newest first"
      found={{ items: found.loading && !found.rows.length ? undefined : found.rows, problem: found.problem, refresh: found.refresh }}
      empty={!found.problem && <Empty title="Nothing has been changed yet." />}
      keyOf={(each) => each.id}
      columns={[
        { name: "when", cell: (each) => when(each.at) },
        { name: "who", cell: (each) => each.actor },
        { name: "did", cell: (each) => each.action.replaceAll(".", " ").replaceAll("_", " ") },
        { name: "to what", css: "mono wrapany", cell: (each) => (/^\d{8}T\d{6}-/.test(each.target) ? <a href={`/runs/${part(each.target)}`}>{each.target}</a> : each.target) },
      ]}
      after={
        found.rows.length >= 20 && (
          <p class="acts start">
            <button type="button" class="btn sm" onClick={found.more}>
              Older
            </button>
          </p>
        )
      }
    />
  );
}
