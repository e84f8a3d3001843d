// How the server is: its checks, and its numbers.
import { useResource } from "../api";
import { words } from "../format";
import { Trouble } from "../parts/controls";
import { Glyph } from "../parts/marks";

export function Health() {
  const found = useResource<Record<string, string>>("/health");
  if (found.problem) return <Trouble problem={found.problem} retry={found.refresh} />;
  if (!found.data) return null;
  return (
    <>
      <ul class="checks">
        {Object.entries(found.data).map(([name, text]) => {
          const good = /^(ok|healthy)$/.test(text);
          return (
            <li key={name} class={good ? "ok" : "no"}>
              <Glyph name={good ? "check" : "cross"} />
              <span>
                <span class="vh">{good ? "good: " : "wrong: "}</span>
                <b>{words(name)}</b> {text}
              </span>
            </li>
          );
        })}
      </ul>
      <p class="cap">
        Programs read <a href="/metrics">/metrics</a>; the API is described in <a href="/docs">/docs</a>.
      </p>
    </>
  );
}
