// The first visit: nothing has run here yet, three ways to start.
import { Command } from "../parts/controls";
import { mayWrite, Page } from "../shell";
import { Health } from "./health";

export function FirstVisit() {
  return (
    <Page title="Runs, first visit">
      <div class="head">
        <div>
          <h1>Runs</h1>
          <p class="lead">Nothing has run here yet. Three ways to start; the first needs no key and takes about 20 seconds.</p>
        </div>
      </div>
      <div class="ways">
        <article class="box way">
          <div class="in">
            <h2>Watch it work</h2>
            <p>Nine sample tasks of Proctor’s repository, solved by their authors’ own solutions and by an agent that does nothing. The first must pass all, the second none. In a terminal there:</p>
            <Command text="proctor run specs/sample_tasks.toml" />
          </div>
          <footer>90 trials · about 20 s · $0.00</footer>
        </article>
        <article class="box way">
          <div class="in">
            <h2>Evaluate an agent</h2>
            <p>Add a task: a Harbor or Terminal-Bench folder as a ZIP. Proctor checks it, runs its solution first, and tells you the cost before it spends anything. To write one of your own:</p>
            <Command text="proctor new task first-task" />
            {mayWrite() && (
              <p class="acts">
                <a class="btn" href="/tasks">
                  Add tasks
                </a>
                <a class="btn quiet" href="/settings#keys">
                  Add a model key
                </a>
              </p>
            )}
          </div>
          <footer>the solution runs without a key; an agent needs one for its model’s provider</footer>
        </article>
        <article class="box way">
          <div class="in">
            <h2>Measure your code</h2>
            <p>
              Write one class with <code>execute_once</code>. Proctor repeats it, warns when the machine is too noisy, and compares two versions in lockstep pairs.
            </p>
            <Command text="proctor run specs/json_encode.yaml" />
          </div>
          <footer>no key, no container</footer>
        </article>
      </div>
      <section>
        <h2>This machine</h2>
        <Health />
        <p class="cap">
          <code>proctor doctor</code> says whether agents, sandboxes and images work here. Results from elsewhere: <code>proctor import FOLDER</code>. Press <kbd>?</kbd> on any page for its keys.
        </p>
      </section>
    </Page>
  );
}
