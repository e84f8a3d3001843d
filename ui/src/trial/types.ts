// A trial as the API answers it.
import type { TrialRow } from "../types";

export interface Attempt {
  number: number;
  outcome: string | null;
  blame: string | null;
  counts: boolean;
  reward: number | null;
  failure: { phase?: string; type?: string; message?: string } | null;
  phases_s: Record<string, number> | null;
  metrics: Record<string, unknown> | null;
  ledger: Record<string, unknown> | null;
  usage: Record<string, unknown> | null;
  notes: string[];
  suspect: unknown;
  system_changes: unknown;
  image: Record<string, unknown> | null;
  artifacts: { name: string; size_bytes?: number; size?: number; media_type?: string; digest?: string }[];
  worker?: string | null;
  started_at: number | null;
  ended_at: number | null;
}

export interface TrialDetail {
  trial: TrialRow;
  attempts: Attempt[];
  sentence: string;
  previous: number | null;
  next: number | null;
  next_failure: number | null;
  live: { phase: string; since: number } | null;
  run: { id: string; name: string };
  labels: string[];
  comments: { author?: string | null; user?: string | null; at?: number; created_at?: number; text: string }[];
}

export type Text = string | { text: string; cut?: number } | null | undefined;

export interface StepData {
  id?: number;
  step_id?: number;
  source: string;
  message: Text;
  reasoning?: Text;
  reasoning_content?: Text;
  tool_calls?: { tool_call_id?: string; id?: string; function_name?: string; name?: string; arguments?: unknown }[];
  observation?: { results?: { source_call_id?: string; content?: Text }[] } | null;
  metrics?: Record<string, number | null> | null;
  at?: number | string | null;
  timestamp?: string | null;
  cut?: number;
}

export const textOf = (value: Text | unknown): string => {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map(textOf).join("\n");
  const found = value as { text?: unknown; cut?: number };
  return typeof found.text === "string" ? found.text : JSON.stringify(value, null, 2);
};

export const cutOf = (value: Text | unknown): number => (value && typeof value === "object" ? ((value as { cut?: number }).cut ?? 0) : 0);
