// The experiments that a spec may name: what each measures, and its parameters.
import { useState } from "preact/hooks";
import { useResource, type Listed } from "../api";
import { many } from "../format";
import { Bones, Empty, Find, Trouble } from "../parts/controls";
import { Page } from "../shell";

interface Param {
  type: string;
  required: boolean;
  default: unknown;
  choices: unknown[];
  minimum: number | null;
  maximum: number | null;
  description: string;
}

interface Experiment {
  slug: string;
  summary: string;
  tags: string[];
  params: Record<string, Param>;
}

const limits = (param: Param): string =>
  param.choices.length
    ? param.choices.map(String).join(", ")
    : param.minimum !== null && param.maximum !== null
      ? `${param.minimum} to ${param.maximum}`
      : param.minimum !== null
        ? `at least ${param.minimum}`
        : param.maximum !== null
          ? `at most ${param.maximum}`
          : "";

function Params({ params }: { params: Record<string, Param> }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Parameters">
      <table class="doc-t">
        <thead>
          <tr>
            <th>parameter</th>
            <th>type</th>
            <th class="n">default</th>
            <th class="phone-off">may be</th>
            <th class="pr">what it is</th>
          </tr>
        </thead>
        <tbody>
          {Object.entries(params).map(([name, each]) => (
            <tr key={name}>
              <td class="mono">{name}</td>
              <td>{each.type}</td>
              <td class="n">{each.required ? "required" : each.default === null || each.default === undefined ? "–" : String(each.default)}</td>
              <td class="phone-off">{limits(each)}</td>
              <td class="pr">{each.description}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Experiments() {
  const found = useResource<Listed<Experiment>>("/api/experiments");
  const [find, set] = useState("");
  const items = found.data?.items ?? [];
  const wanted = find.toLowerCase();
  const shown = items.filter((each) => [each.slug, each.summary, ...each.tags].join(" ").toLowerCase().includes(wanted));
  return (
    <Page title="Experiments" css="mid">
      <p class="kicker">
        <a href="/history">History</a> / experiments
      </p>
      <div class="head">
        <div>
          <h1>Experiments</h1>
          <p class="lead">Code that a spec may name and measure at every point of its parameters.</p>
        </div>
        <div class="acts">
          <a class="btn" href="/runs?kind=experiment">
            Runs of experiments
          </a>
        </div>
      </div>
      <div class="toolbar">
        <Find label="Filter experiments" value={find} set={set} />
      </div>
      {found.problem && <Trouble problem={found.problem} retry={found.refresh} />}
      {!found.data && !found.problem && <Bones />}
      {found.data && !shown.length && <Empty title={items.length ? "No experiment matches." : "There is no experiment."} />}
      {shown.map((each) => (
        <details class="folded exper" key={each.slug}>
          <summary>
            <b>{each.slug}</b> <span class="dim">{each.summary}</span> <small>{many(Object.keys(each.params).length, "parameter")}</small>
          </summary>
          <p class="exper-tags">
            {each.tags.map((tag) => (
              <span class="tag" key={tag}>
                {tag}
              </span>
            ))}
          </p>
          {Object.keys(each.params).length > 0 ? <Params params={each.params} /> : <p class="hint">It takes no parameters.</p>}
        </details>
      ))}
    </Page>
  );
}
