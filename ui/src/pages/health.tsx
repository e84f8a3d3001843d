// How the server is: its checks, and its numbers.
import { useResource } from "../api";
import { words } from "../format";
import { Trouble } from "../parts/controls";
import { Checks } from "./first";

interface HealthAnswer {
  status?: string;
  version?: string;
  checks?: { name: string; ok: boolean | null; text: string }[] | Record<string, unknown>;
  [name: string]: unknown;
}

function checksOf(data: HealthAnswer): { name: string; ok: boolean | null; text: string }[] {
  if (Array.isArray(data.checks)) return data.checks;
  const pairs = Object.entries({ ...(data.checks ?? {}), ...data }).filter(([name, value]) => name !== "checks" && ["string", "number", "boolean"].includes(typeof value));
  return pairs.map(([name, value]) => {
    const text = value === true ? "works" : value === false ? "does not work" : String(value);
    const good = value === true || /^(ok|healthy|ready|up|works)$/i.test(text) || !/status|store|engine|database/.test(name);
    return { name: words(name), ok: value === false ? false : good, text };
  });
}

export function Health() {
  const found = useResource<HealthAnswer>("/health");
  if (found.problem) return <Trouble problem={found.problem} retry={found.refresh} />;
  if (!found.data || typeof found.data !== "object") return null;
  return (
    <>
      <Checks checks={checksOf(found.data)} />
      <p class="cap">
        Programs read <a href="/metrics">/metrics</a>; the API is described in <a href="/docs">/docs</a>.
      </p>
    </>
  );
}
