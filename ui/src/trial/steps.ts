// What a step is to a reader: its kind, a title, its commands with their output and exit codes, its time.
import { moment } from "../format";
import { cutOf, textOf, type StepData } from "./types";

export type StepKind = "instruction" | "talk" | "command" | "edit" | "tool" | "note";

export interface Call {
  kind: StepKind;
  name: string;
  /** What it does: the command, or the file. */
  text: string;
  /** Its other arguments, or a patch. */
  body: string;
  output: string;
  cut: number;
  exit: number | null;
}

export interface Step {
  number: number;
  kind: StepKind;
  title: string;
  message: string;
  cut: number;
  reasoning: string;
  calls: Call[];
  failed: boolean;
  seconds: number | null;
  cost: number | null;
  input: number | null;
  cached: number | null;
  output: number | null;
  source: string;
}

const SHELL = /^(shell|bash|sh|exec|execute|run|run_command|terminal|command|execute_bash|local_shell|cmd|keystrokes|send_keys|run_shell_command|bash_command)$/i;
const EDIT = /(edit|write|str_replace|apply_patch|create_file|insert|patch|replace)/i;
const EXIT = /\[?(?:exit(?:ed)?(?: with)?(?: code| status)?|returncode)[:=]? *(-?\d+)\]?\s*$/i;

function argumentsOf(value: unknown): Record<string, unknown> {
  if (value && typeof value === "object") return value as Record<string, unknown>;
  if (typeof value !== "string") return {};
  try {
    const parsed = JSON.parse(value) as unknown;
    return parsed && typeof parsed === "object" ? (parsed as Record<string, unknown>) : { value };
  } catch {
    return { value };
  }
}

const first = (known: Record<string, unknown>, names: string[]): string => {
  for (const each of names) {
    const value = known[each];
    if (typeof value === "string" && value) return value;
    if (Array.isArray(value) && value.every((one) => typeof one === "string")) return value.join(" ");
  }
  return "";
};

function callOf(call: NonNullable<StepData["tool_calls"]>[number], output: string, cut: number): Call {
  const name = call.function_name ?? call.name ?? "tool";
  const known = argumentsOf(call.arguments);
  const command = first(known, ["command", "cmd", "script", "input", "keystrokes", "code"]);
  const path = first(known, ["path", "file_path", "filename", "file"]);
  const kind: StepKind = SHELL.test(name) ? "command" : EDIT.test(name) && path ? "edit" : command && /shell|bash|exec|command|terminal/i.test(name) ? "command" : "tool";
  const rest = Object.entries(known).filter(([key, value]) => value !== command && value !== path && value !== "" && value !== null && key !== "value");
  const body = kind === "edit" ? edits(known) : rest.length && kind === "tool" ? JSON.stringify(Object.fromEntries(rest), null, 2) : "";
  const found = EXIT.exec(output.slice(-200));
  return { kind, name, text: kind === "edit" ? path : (command === "{}" ? "" : command) || path || name, body, output, cut, exit: found ? Number(found[1]) : null };
}

/** An edit as a diff: what was there, and what takes its place. */
function edits(known: Record<string, unknown>): string {
  const before = first(known, ["old_str", "old_string", "search"]);
  const after = first(known, ["new_str", "new_string", "replace", "content", "file_text", "insert_text", "contents"]);
  const patch = first(known, ["patch", "diff"]);
  if (patch) return patch;
  const lines = (sign: string, text: string): string[] => (text ? text.replace(/\n$/, "").split("\n").map((each) => sign + each) : []);
  return [...lines("-", before), ...lines("+", after)].join("\n");
}

const line = (text: string): string => text.trim().split("\n")[0]?.slice(0, 200) ?? "";

export function stepsOf(found: StepData[], from = 0): Step[] {
  let before: number | null = null;
  return found.map((each, at) => {
    const results = each.observation?.results ?? [];
    const used = new Set<unknown>();
    const calls = (each.tool_calls ?? []).map((call) => {
      const id = call.tool_call_id ?? call.id;
      const result = results.find((one) => one.source_call_id === id && !used.has(one)) ?? (results.length === 1 ? results[0] : undefined);
      used.add(result);
      return callOf(call, textOf(result?.content), cutOf(result?.content));
    });
    for (const rest of results.filter((one) => !used.has(one))) {
      calls.push({ kind: "note", name: "output", text: "", body: "", output: textOf(rest.content), cut: cutOf(rest.content), exit: null });
    }
    const message = textOf(each.message);
    const time = moment(each.at ?? each.timestamp)?.getTime() ?? null;
    const seconds = time !== null && before !== null ? Math.max(0, (time - before) / 1000) : null;
    before = time ?? before;
    const lead = calls.find((call) => call.kind !== "note");
    const kind: StepKind = each.source !== "agent" && each.source !== "assistant" ? (at + from === 0 || each.source === "user" ? "instruction" : "note") : (lead?.kind ?? "talk");
    const metrics = each.metrics ?? {};
    return {
      number: each.id ?? each.step_id ?? from + at + 1,
      kind,
      title: kind === "instruction" ? "instruction" : lead ? (lead.kind === "edit" ? `edit ${lead.text}` : line(lead.text)) : line(message) || each.source,
      message,
      cut: cutOf(each.message),
      reasoning: textOf(each.reasoning ?? each.reasoning_content),
      calls,
      failed: calls.some((call) => (call.exit ?? 0) !== 0),
      seconds,
      cost: metrics.cost_usd ?? null,
      input: metrics.prompt_tokens ?? null,
      cached: metrics.cached_tokens ?? null,
      output: metrics.completion_tokens ?? null,
      source: each.source,
    };
  });
}

/** Everything in a step that a reader may look for. */
export const wordsOf = (step: Step): string => [step.message, step.reasoning, ...step.calls.flatMap((each) => [each.text, each.body, each.output])].join("\n").toLowerCase();

export const GLYPHS: Record<StepKind, string> = { instruction: "file", talk: "talk", command: "term", edit: "edit", tool: "flag", note: "dots" };
