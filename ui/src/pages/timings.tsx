// What `proctor ab` and `proctor time` have saved: the list, and each as its document.
import { useResource, type Listed } from "../api";
import { capital, prose, when } from "../format";
import { Bones, Empty, Trouble } from "../parts/controls";
import { Badge } from "../parts/marks";
import { part, query } from "../router";
import { Page } from "../shell";
import { DocumentAt } from "./results";

interface Saved {
  name: string;
  kind: "ab" | "time";
  at: number;
  title: string;
  headline: string;
  verdict: string;
  tone: string;
}

const KINDS: Record<string, string> = { ab: "two versions of code", time: "commands" };

export function Timings() {
  const chosen = query.value.get("file") ?? "";
  const found = useResource<Listed<Saved>>(chosen ? "" : "/api/timings");
  if (chosen) {
    return (
      <Page title={chosen} css="mid">
        <p class="kicker">
          <a href="/timings">Timings</a> / {chosen}
        </p>
        <DocumentAt address={`/api/timings/${part(chosen)}`} />
      </Page>
    );
  }
  const items = found.data?.items ?? [];
  return (
    <Page title="Timings" css="mid">
      <p class="kicker">
        <a href="/history">History</a> / timings
      </p>
      <div class="head">
        <div>
          <h1>Timings</h1>
          <p class="lead">Versions of code and commands that were timed in turns on the server's machine.</p>
        </div>
      </div>
      {found.problem && <Trouble problem={found.problem} retry={found.refresh} />}
      {!found.data && !found.problem && <Bones />}
      {found.data && !items.length && (
        <Empty title="Nothing is saved here yet.">
          <code>proctor ab SPEC</code> saves each comparison; <code>proctor time --export FILE</code> saves what it timed, and is listed when the file is in the folder of results.
        </Empty>
      )}
      {items.length > 0 && (
        <table class="stick">
          <thead>
            <tr>
              <th>what</th>
              <th>verdict</th>
              <th class="phone-off">in a sentence</th>
              <th class="n">when</th>
            </tr>
          </thead>
          <tbody>
            {items.map((each) => (
              <tr key={each.name}>
                <td>
                  <a class="top2" href={`/timings?file=${part(each.name)}`} title={each.name}>
                    {each.title || each.name}
                  </a>
                  <span class="sub">{KINDS[each.kind]}</span>
                </td>
                <td>{each.verdict ? <Badge tone={each.tone}>{each.verdict}</Badge> : "–"}</td>
                <td class="phone-off dim certsaid">{capital(prose(each.headline))}</td>
                <td class="n">{when(each.at)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Page>
  );
}
