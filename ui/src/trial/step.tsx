// One step of a transcript: its words, its thinking, its commands with their output.
import { dollars, duration, known, many, tokens } from "../format";
import { Copy } from "../parts/controls";
import { Glyph } from "../parts/marks";
import { ExitCode, Marked, Said, Terminal } from "../parts/terminal";
import { GLYPHS, type Call, type Step } from "./steps";

/** A paragraph that was broken by hand into lines, in one; lists, headings and code stay as they are. */
const flowing = (text: string): string => (text.includes("```") ? text : text.replace(/(\S)\n(?=[^\s#>|*+\d-])/g, (all, last: string, at: number) => (text.slice(text.lastIndexOf("\n", at) + 1).startsWith("#") ? all : `${last} `)));

export function StepView({ step, on, find, whole, agent, base = "" }: { step: Step; on: boolean; find: string; whole: (number: number) => void; agent: string | null; base?: string }) {
  const id = `s${step.number}`;
  const edit = step.calls.find((each) => each.kind === "edit");
  const name = step.kind === "instruction" ? "Instruction" : step.kind === "command" ? "Command" : edit ? `Edit ${edit.text}` : step.kind === "talk" ? (agent ?? "Agent") : (step.calls[0]?.name ?? step.source);
  const facts = [
    known(step.seconds) ? duration(step.seconds) : "",
    known(step.input) ? `${tokens(step.input)} in${step.cached ? ` (${tokens(step.cached)} cached)` : ""}, ${tokens(step.output)} out` : "",
    step.cost ? dollars(step.cost) : "",
  ].filter(Boolean);
  return (
    <article class={`step ${on ? "on" : ""}`} id={base ? undefined : id} aria-label={`Step ${step.number}: ${step.title}`}>
      <header>
        <a class="sn" href={`${base}#${id}`} aria-label={`Step ${step.number}`}>
          {step.number}
        </a>
        <Glyph name={GLYPHS[step.kind]} />
        <b>{name}</b>
        <span class="dim">{facts.join(" · ")}</span>
        <span class="end acts">
          <Copy text={() => (base ? location.origin + base : location.href.replace(/#.*/, "")) + `#${id}`} label={`Copy link to step ${step.number}`} link />
        </span>
      </header>
      <div class="sb">
        {step.reasoning && (
          <details class="think" open={!!find && step.reasoning.toLowerCase().includes(find.toLowerCase())}>
            <summary>
              thinking <small>{many(step.reasoning.split(/\s+/).length, "word")}</small>
            </summary>
            <pre>
              <Marked text={step.reasoning} find={find} />
            </pre>
          </details>
        )}
        {step.message && (
          <pre class="say">
            <Said text={step.kind === "instruction" ? flowing(step.message) : step.message} find={find} />
          </pre>
        )}
        {step.cut > 0 && (
          <button type="button" class="btn quiet sm" onClick={() => whole(step.number)}>
            Show all of it
          </button>
        )}
        {step.calls.map((each, at) => (
          <CallView key={at} call={each} id={at ? `${id}.${at + 1}` : id} find={find} whole={() => whole(step.number)} />
        ))}
      </div>
    </article>
  );
}

function CallView({ call, id, find, whole }: { call: Call; id: string; find: string; whole: () => void }) {
  if (call.kind === "edit" && call.body) {
    const lines = call.body.split("\n");
    return (
      <>
        <div class="term">
          <header>
            <b class="mono">{call.text}</b>
            <span class="good-t">+{lines.filter((each) => each.startsWith("+")).length}</span>
            <span class="bad-t">−{lines.filter((each) => each.startsWith("-")).length}</span>
          </header>
          <span class="ln">
            {lines.slice(0, 400).map((each, at) => (
              <span key={at} class={each.startsWith("+") ? "add" : each.startsWith("-") ? "del" : each.startsWith("@@") ? "hunk" : ""}>
                <a />
                <code>
                  <Marked text={each} find={find} />
                </code>
              </span>
            ))}
          </span>
        </div>
        {call.output && <Terminal id={id} text={call.output} find={find} head={<ExitCode code={call.exit} />} cut={call.cut} whole={whole} />}
      </>
    );
  }
  const output = call.exit === null ? call.output : call.output.replace(/\n*\[exit code -?\d+\]\s*$/, "");
  const text = call.kind === "command" ? `$ ${call.text}${output ? `\n${output}` : ""}` : [call.text !== call.name ? call.text : "", call.body, output].filter(Boolean).join("\n");
  if (!text.trim() && !call.cut) return <p class="hint">{call.name}: no output.</p>;
  const head = call.exit !== null ? <ExitCode code={call.exit} /> : <span>{call.kind === "command" ? "" : call.name}</span>;
  return <Terminal id={id} text={text} find={find} head={head} cut={call.cut} whole={whole} />;
}
