// Tokens, model keys, projects, the preferences of this browser, and the health of the server.
import { useState } from "preact/hooks";
import { send, useResource, type Listed } from "../api";
import { store, stored, when } from "../format";
import { keysOn, switchKeys } from "../keys";
import { Act, Command, confirm, Empty, Trouble } from "../parts/controls";
import { Badge } from "../parts/marks";
import { fragment, part } from "../router";
import { Page, session, setTheme } from "../shell";
import { Audit, Projects, Users } from "./admin";
import { Health } from "./health";
import { Webhooks } from "./webhooks";

interface Token {
  id: string;
  name: string;
  scopes: string[];
  created_at: number;
  last_used_at?: number | null;
  expires_at?: number | null;
  revoked_at?: number | null;
  revoked?: boolean;
  user?: string;
  project?: string | null;
}

interface Secret {
  name: string;
  provider?: string;
  masked?: string;
  hint?: string;
  updated_at?: number;
}

const SCOPES: [string, string][] = [["read", "read"], ["run", "start runs"], ["code", "run code of this machine"], ["worker", "work"], ["admin", "everything"]];
const PARTS: [string, string][] = [["tokens", "Tokens"], ["keys", "Model keys"], ["projects", "Projects"], ["users", "Users"], ["webhooks", "Webhooks"], ["audit", "Audit"], ["page", "This page"], ["health", "Health"]];
const OPEN = ["page", "health"];

export function Settings() {
  const admin = session.value?.read_only !== true && (session.value?.scopes?.includes("admin") ?? true);
  const shown = PARTS.filter(([name]) => admin || OPEN.includes(name));
  const now = fragment.value || shown[0]?.[0];
  return (
    <Page title="Settings" css="mid">
      <div class="head">
        <div>
          <h1>Settings</h1>
        </div>
      </div>
      <div class="set">
        <nav class="snav" aria-label="Settings">
          {shown.map(([name, title]) => (
            <a key={name} href={`#${name}`} aria-current={now === name ? "true" : undefined}>
              {title}
            </a>
          ))}
        </nav>
        <div>
          {admin && <Tokens />}
          {admin && <Keys />}
          {admin && <Projects />}
          {admin && <Users />}
          {admin && <Webhooks />}
          {admin && <Audit />}
          <Preferences />
          <section id="health">
            <h2>Health</h2>
            <Health />
          </section>
        </div>
      </div>
    </Page>
  );
}

function Tokens() {
  const found = useResource<Listed<Token>>("/api/tokens");
  const [name, set] = useState("");
  const [user, forWhom] = useState("");
  const projects = useResource<Listed<{ id: string; title?: string }>>("/api/projects");
  const [project, belong] = useState("");
  const home = project || (session.value?.project ?? projects.data?.items[0]?.id ?? "default");
  const [scopes, choose] = useState<string[]>(["read", "run"]);
  const [made, show] = useState<{ name: string; token: string } | null>(null);
  const [open, unfold] = useState(false);
  const items = found.data?.items ?? [];
  return (
    <section id="tokens" class="leadtight">
      <div class="h2">
        <h2>Tokens</h2>
        <small>let programs use the API in your name</small>
        <div class="acts">
          <button type="button" class="btn sm main" onClick={() => unfold(!open)}>
            New token
          </button>
        </div>
      </div>
      {made && (
        <div class="notice info">
          <h3>{made.name} was made. Copy it now: it is shown this once.</h3>
          <Command text={made.token} />
        </div>
      )}
      {open && (
        <div class="box">
          <div class="in stackx">
            <div class="formrow">
              <div class="field">
                <label for="token-name">Name</label>
                <input id="token-name" value={name} onInput={(event) => set(event.currentTarget.value)} placeholder="ci-nightly" />
              </div>
              <div class="field">
                <label for="token-user">For whom</label>
                <input id="token-user" value={user} onInput={(event) => forWhom(event.currentTarget.value)} placeholder={session.value?.user ?? "local"} />
              </div>
            </div>
            {(projects.data?.items.length ?? 0) > 1 && (
              <div class="field">
                <label for="token-project">Project</label>
                <select id="token-project" value={home} onChange={(event) => belong(event.currentTarget.value)}>
                  {projects.data?.items.map((each) => (
                    <option key={each.id} value={each.id}>
                      {each.title ?? each.id}
                    </option>
                  ))}
                </select>
              </div>
            )}
            <div class="picks">
              {SCOPES.map(([scope, title]) => (
                <label key={scope} class="pick">
                  <input type="checkbox" checked={scopes.includes(scope)} onChange={() => choose(scopes.includes(scope) ? scopes.filter((each) => each !== scope) : [...scopes, scope])} /> {title}
                </label>
              ))}
            </div>
            <p class="acts start">
              <Act
                css="main"
                act={async () => {
                  const answer = await send<{ token: string }>("POST", "/api/tokens", { name, user: user || session.value?.user || "local", scopes, ...(scopes.includes("admin") ? {} : { project: home }) });
                  show({ name, token: answer.token });
                }}
                then={() => {
                  unfold(false);
                  found.refresh();
                }}
              >
                Make token
              </Act>
            </p>
          </div>
        </div>
      )}
      {found.problem && <Trouble problem={found.problem} retry={found.refresh} />}
      {found.data && !items.length && <Empty title="There are no tokens.">On this machine alone none is needed.</Empty>}
      {items.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Tokens">
          <table>
            <thead>
              <tr>
                <th>name</th>
                <th class="phone-off">for</th>
                <th>may</th>
                <th class="n phone-off">made</th>
                <th class="n">last used</th>
                <th>
                  <span class="vh">act</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {items.map((each) => {
                const gone = each.revoked || !!each.revoked_at;
                return (
                  <tr key={each.id}>
                    <td class={`top2 ${gone ? "dim" : ""}`}>{each.name}</td>
                    <td class="phone-off">{each.user}</td>
                    <td>{each.scopes.join(", ")}</td>
                    <td class="n phone-off">{when(each.created_at)}</td>
                    <td class="n">{gone ? <Badge>revoked</Badge> : each.last_used_at ? when(each.last_used_at) : "never"}</td>
                    <td class="n">
                      {!gone && (
                        <button
                          type="button"
                          class="btn sm danger"
                          onClick={() =>
                            confirm({
                              title: `Revoke ${each.name}?`,
                              text: <p>Whoever uses it is refused from now on. This cannot be undone.</p>,
                              yes: "Revoke it",
                              act: () => void send("DELETE", `/api/tokens/${part(each.id)}`).then(found.refresh),
                            })
                          }
                        >
                          Revoke
                        </button>
                      )}
                    </td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function Keys() {
  const found = useResource<Listed<Secret>>("/api/secrets");
  const [name, set] = useState("");
  const [value, write] = useState("");
  const items = found.data?.items ?? [];
  return (
    <section id="keys">
      <div class="h2">
        <h2>Model keys</h2>
        <small>encrypted; never logged, never in a sandbox</small>
      </div>
      {found.problem && <Trouble problem={found.problem} retry={found.refresh} />}
      {items.length > 0 && (
        <table>
          <thead>
            <tr>
              <th>name</th>
              <th>key</th>
              <th class="n phone-off">stored</th>
              <th>
                <span class="vh">act</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {items.map((each) => (
              <tr key={each.name}>
                <td class="top2">{each.name}</td>
                <td class="mono">{each.masked ?? each.hint ?? "…"}</td>
                <td class="n phone-off">{when(each.updated_at)}</td>
                <td class="n">
                  <Act css="sm danger" act={() => send("DELETE", `/api/secrets/${part(each.name)}`)} then={found.refresh}>
                    Remove
                  </Act>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <form class="formrow tokbox" onSubmit={(event) => event.preventDefault()}>
        <div class="field">
          <label for="key-name">Name</label>
          <input id="key-name" value={name} onInput={(event) => set(event.currentTarget.value)} placeholder="OPENAI_API_KEY" autocomplete="off" />
        </div>
        <div class="field">
          <label for="key-value">Key</label>
          <input id="key-value" type="password" value={value} onInput={(event) => write(event.currentTarget.value)} autocomplete="off" />
        </div>
        <Act
          act={() => send("PUT", `/api/secrets/${part(name)}`, { value })}
          then={() => {
            set("");
            write("");
            found.refresh();
          }}
        >
          Store key
        </Act>
      </form>
    </section>
  );
}

function Preferences() {
  const [theme, turn] = useState(stored("theme"));
  const [times, zone] = useState(stored("times"));
  return (
    <section id="page">
      <h2>This page</h2>
      <div class="prefs">
        <div>
          <span class="lab">Colours</span>
          <span class="seg" role="group" aria-label="Colours">
            {[["", "As the system"], ["light", "Light"], ["dark", "Dark"]].map(([value = "", title]) => (
              <button
                type="button"
                key={value}
                aria-pressed={theme === value}
                onClick={() => {
                  turn(value);
                  setTheme(value);
                }}
              >
                {title}
              </button>
            ))}
          </span>
        </div>
        <div>
          <span class="lab">Times</span>
          <span class="seg" role="group" aria-label="Times">
            {[["", "Mine"], ["utc", "UTC"]].map(([value = "", title]) => (
              <button
                type="button"
                key={value}
                aria-pressed={times === value}
                onClick={() => {
                  zone(value);
                  store("times", value);
                }}
              >
                {title}
              </button>
            ))}
          </span>
        </div>
        <div>
          <label>
            <input type="checkbox" checked={keysOn.value} onChange={(event) => switchKeys(event.currentTarget.checked)} /> Keyboard shortcuts<span class="phone-off">: <kbd>?</kbd> lists them</span>
          </label>
        </div>
      </div>
      <p class="cap">Kept in this browser. {session.value?.mode === "local" ? "This server answers only this machine and asks for no token." : ""}</p>
    </section>
  );
}
