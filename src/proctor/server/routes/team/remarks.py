"""`/api/trials/{run}/{index}/labels` and `/comments`: what people say about a trial."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.server.audit import audit_run
from proctor.server.auth.caller import Runner, Shared, VisibleRun
from proctor.server.idempotency import Keyed
from proctor.server.problem import Problem
from proctor.server.route import Route, answer
from proctor.server.text import printable
from proctor.server.trial.attempt_files import find_trial
from proctor.store.store import Store

router = APIRouter(prefix="/api/trials/{run}/{index}", tags=["trials"], route_class=Route)

Label = Annotated[
    str, Field(min_length=1, max_length=60, pattern=r"^\S(?:.*\S)?$"), AfterValidator(printable)
]
CommentId = Annotated[str, Path(max_length=64)]


class LabelsBody(BaseModel):
    """All labels of a trial."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"labels": ["looked at"]}]})

    labels: list[Label] = Field(max_length=50)


class CommentBody(BaseModel):
    """A comment."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"text": "The test expects a tab."}]}
    )

    text: str = Field(min_length=1, max_length=20_000, pattern=r"\S")


@router.put("/labels", summary="Set the labels of a trial")
async def put_labels(
    run: VisibleRun, index: int, body: LabelsBody, caller: Runner, shared: Shared
) -> Response:
    """These and no others. A trial with a label keeps its files when old runs are cleared."""

    def write(store: Store) -> dict[str, Any]:
        find_trial(store, run, index)
        store.service.remarks.set_labels(run, index, body.labels, caller.user)
        audit_run(store, caller, "trial.label", run, trial=index, labels=body.labels)
        return {"labels": [each["label"] for each in store.views.trials.labels(run, index)]}

    return answer(await shared.store(write))


@router.post("/comments", status_code=201, summary="Comment on a trial")
async def add_comment(
    run: VisibleRun, index: int, body: CommentBody, caller: Runner, shared: Shared, _: Keyed
) -> Response:
    """Plain text."""

    def write(store: Store) -> dict[str, Any]:
        find_trial(store, run, index)
        comment_id = store.service.remarks.comment(run, index, body.text, caller.user)
        audit_run(store, caller, "trial.comment", run, trial=index, comment=comment_id)
        found = next(each for each in store.views.trials.comments(run, index) if each["id"] == comment_id)
        return {"id": comment_id, "author": found["author"], "at": found["at"], "text": found["body"]}

    return answer(await shared.store(write), 201)


@router.delete("/comments/{comment}", status_code=204, summary="Take a comment back")
async def remove_comment(
    run: VisibleRun, index: int, comment: CommentId, caller: Runner, shared: Shared, _: Keyed
) -> Response:
    """One's own; an admin may remove any."""

    def remove(store: Store) -> None:
        author = store.service.remarks.author(run, index, comment) if 0 <= index < 1 << 31 else None
        if author is None:
            raise Problem("not_found", f"Trial {index} has no comment '{comment}'")
        if author != caller.user and not caller.may("admin"):
            raise Problem("forbidden", "This comment is somebody else's")
        store.service.remarks.remove_comment(comment)
        audit_run(store, caller, "comment.remove", run, trial=index, comment=comment)

    await shared.store(remove)
    return Response(status_code=204)
