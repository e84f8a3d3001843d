// What the trial left: the diff of the task's folder, and every file with its text.
import { useMemo, useState } from "preact/hooks";
import { useResource } from "../api";
import { bytes, count, many } from "../format";
import { Bones, Empty, Find, Trouble } from "../parts/controls";
import { Glyph } from "../parts/marks";
import { FileDiff, parseDiff, Terminal } from "../parts/terminal";
import { part, put, query } from "../router";
import type { Attempt, TrialDetail } from "./types";

interface FileInfo {
  path: string;
  size: number;
  media_type?: string;
  link?: string;
}

const MOST_DIFFS = 60;

export function Files({ detail, attempt }: { detail: TrialDetail; attempt: Attempt | undefined }) {
  const base = `/api/trials/${part(detail.run.id)}/${detail.trial.index}`;
  const suffix = attempt ? `?attempt=${attempt.number}` : "";
  const files = useResource<{ files: FileInfo[] }>(attempt ? `${base}/files${suffix}` : "");
  const diff = useResource<string | { diff: string }>(attempt ? `${base}/diff${suffix}` : "");
  const text = typeof diff.data === "string" ? diff.data : (diff.data?.diff ?? "");
  const changed = useMemo(() => parseDiff(text), [text]);
  const chosen = query.value.get("file") ?? "";
  const [find, set] = useState("");
  if (!attempt) return <Empty title="Files are collected when the trial ends." />;
  if (files.problem && !files.data) return <Trouble problem={files.problem} retry={files.refresh} />;
  const all = files.data?.files ?? attempt.artifacts.map((each) => ({ path: each.name, size: each.size_bytes ?? each.size ?? 0, media_type: each.media_type }));
  const shown = all.filter((each) => each.path.toLowerCase().includes(find.toLowerCase()));
  const added = changed.reduce((sum, each) => sum + each.added, 0);
  const removed = changed.reduce((sum, each) => sum + each.removed, 0);
  return (
    <div class="ft tabbody">
      <div class="treew">
        <nav class="tree" aria-label="Files">
          <Find label="Find a file" value={find} set={set} />
          {changed.length > 0 && (
            <ul>
              <li class={chosen ? "" : "on"}>
                <a
                  href="?"
                  onClick={(event) => {
                    event.preventDefault();
                    put({ file: null }, false);
                  }}
                >
                  <Glyph name="edit" />
                  <span class="trunc">what changed</span>
                  <small>
                    <span class="good-t">+{count(added)}</span> <span class="bad-t">−{count(removed)}</span>
                  </small>
                </a>
              </li>
            </ul>
          )}
          <Tree files={shown} chosen={chosen} />
        </nav>
      </div>
      <div class="fdiffs">
        {chosen ? (
          <OneFile base={base} attempt={attempt.number} path={chosen} info={all.find((each) => each.path === chosen)} />
        ) : changed.length ? (
          <>
            <div class="toolbar">
              <b>{many(changed.length, "file")}</b>
              <small>
                <span class="good-t">+{count(added)}</span> <span class="bad-t">−{count(removed)}</span> by the agent
              </small>
            </div>
            {changed.slice(0, MOST_DIFFS).map((each) => (
              <FileDiff key={each.path} file={each} />
            ))}
            {changed.length > MOST_DIFFS && <p class="cap">And {changed.length - MOST_DIFFS} more files.</p>}
          </>
        ) : files.loading || diff.loading ? (
          <Bones />
        ) : (
          <Empty title="No change to a text file was recorded.">Choose a file at the left to read it.</Empty>
        )}
      </div>
    </div>
  );
}

function Tree({ files, chosen }: { files: FileInfo[]; chosen: string }) {
  const folders = new Map<string, FileInfo[]>();
  for (const each of files.slice(0, 2000)) {
    const folder = each.path.includes("/") ? each.path.slice(0, each.path.lastIndexOf("/")) : "";
    folders.set(folder, [...(folders.get(folder) ?? []), each]);
  }
  return (
    <ul>
      {[...folders].sort(([a], [b]) => a.localeCompare(b)).map(([folder, inside]) => (
        <>
          {folder && (
            <li class="dir" key={folder}>
              <Glyph name="down" />
              <span>{folder}</span>
            </li>
          )}
          {inside.map((each) => (
            <li key={each.path} class={each.path === chosen ? "on" : ""}>
              <a
                href={`?file=${part(each.path)}`}
                style={{ "--d": folder ? "1" : "0" }}
                title={each.path}
                onClick={(event) => {
                  event.preventDefault();
                  put({ file: each.path }, false);
                }}
              >
                <Glyph name="file" />
                <span class="trunc">{each.path.slice(each.path.lastIndexOf("/") + 1)}</span>
                <small>{bytes(each.size)}</small>
              </a>
            </li>
          ))}
        </>
      ))}
    </ul>
  );
}

function OneFile({ base, attempt, path, info }: { base: string; attempt: number; path: string; info: FileInfo | undefined }) {
  const address = `${base}/file?path=${part(path)}&attempt=${attempt}`;
  const binary = info?.media_type && !/text|json|xml|yaml|toml|x-sh|diff/.test(info.media_type);
  const file = useResource<unknown>(binary ? "" : address);
  const text = typeof file.data === "string" ? file.data : file.data === undefined ? "" : JSON.stringify(file.data, null, 2);
  const save = (
    <a class="btn quiet sm" href={address} download>
      <Glyph name="save" /> Save
    </a>
  );
  if (binary) return <Empty title={`${path} is not text.`}>{save}</Empty>;
  if (file.problem) return <Trouble problem={file.problem} />;
  if (file.data === undefined) return <Bones />;
  if (/\.(patch|diff)$/.test(path)) return <>{parseDiff(text).map((each) => <FileDiff key={each.path} file={each} />)}</>;
  return <Terminal id="file" text={text} head={<><b class="mono">{path}</b>{save}</>} />;
}
