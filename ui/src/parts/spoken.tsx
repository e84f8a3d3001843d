// What a screen reader hears of a live page: one summary, at most every half minute.
import { useEffect, useRef, useState } from "preact/hooks";

const PAUSE_MS = 30_000;

export function Spoken({ text }: { text: string }) {
  const [said, say] = useState("");
  const latest = useRef(text);
  latest.current = text;
  const at = useRef(Date.now());
  useEffect(() => {
    if (text === said) return;
    const timer = setTimeout(
      () => {
        at.current = Date.now();
        say(latest.current);
      },
      Math.max(0, at.current + PAUSE_MS - Date.now()),
    );
    return () => clearTimeout(timer);
  }, [text, said]);
  return (
    <p class="vh" role="status">
      {said}
    </p>
  );
}
