"""The FastAPI app: pages, the files that they load, what they may load, and what errors say."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import quote

from airflow.api_fastapi.core_api.security import get_user
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from jinja2 import Environment, FileSystemLoader
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response

from trainyard.errors import JobError
from trainyard_airflow.ui import api, assets
from trainyard_airflow.ui.access import may_read_run
from trainyard_airflow.ui.app import PREFIX

_log = logging.getLogger(__name__)

_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # The charting library sets attributes of its drawings; it may add no rules to the page.
        "style-src-attr 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "frame-ancestors 'self'",
        "base-uri 'none'",
        "form-action 'self'",
    ]
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LOG_SAYS = "The API server's log says why."

_templates = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True
)


def make_app() -> FastAPI:
    """Make the app."""
    app = FastAPI(title="Trainyard", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(_of_run)
    app.include_router(_of_user)
    app.include_router(_static)
    app.include_router(api.router)
    app.middleware("http")(_guarded)
    app.exception_handler(AnyHTTPException)(_refused)
    app.exception_handler(JobError)(_unanswered)
    app.exception_handler(OSError)(_unanswered)
    return app


_of_run = APIRouter(
    prefix="/runs/{dag_id}/{run_id}",
    dependencies=[Depends(may_read_run)],
    default_response_class=HTMLResponse,
)
_of_user = APIRouter(
    prefix="/models", dependencies=[Depends(get_user)], default_response_class=HTMLResponse
)
_static = APIRouter(prefix="/static")


@_of_run.get("")
def run_page(request: Request, dag_id: str, run_id: str) -> HTMLResponse:
    """The training of a run."""
    return _page(request, "training", "Training", dag=dag_id, run=run_id)


@_of_run.get("/tasks/{task_id}/{map_index}")
def task_page(
    request: Request, dag_id: str, run_id: str, task_id: str, map_index: str
) -> HTMLResponse:
    """The progress of a task."""
    # Airflow's UI leaves its placeholder where a task is not mapped.
    index = map_index if re.fullmatch(r"-1|\d+", map_index) else "-1"
    return _page(request, "task", "Progress", dag=dag_id, run=run_id, task=task_id, map=index)


@_of_user.get("")
def models_page(request: Request) -> HTMLResponse:
    """The models."""
    return _page(request, "models", "Models")


@_of_user.get("/{name}")
def model_page(request: Request, name: str) -> HTMLResponse:
    """A model's versions."""
    return _page(request, "model", f"Model {name}", model=name)


@_of_user.get("/{name}/versions/{version}")
def version_page(request: Request, name: str, version: str) -> HTMLResponse:
    """A version of a model."""
    return _page(request, "version", f"{name} version {version}", model=name, version=version)


@_of_user.get("/{name}/compare")
def compare_page(request: Request, name: str) -> HTMLResponse:
    """Two versions side by side, which the address's query names."""
    return _page(request, "compare", f"Versions of {name}", model=name)


@_static.get("/{tag}/{name}")
def static_file(tag: str, name: str) -> Response:
    """A file that pages load; it has no secret, and its address changes with it."""
    known = assets.files()
    own = assets.plotly_tag() if name == assets.PLOTLY else assets.own_tag()
    if name not in known or tag != own:
        raise HTTPException(404, "There is no such file.")
    return FileResponse(
        known[name],
        media_type=assets.TYPES[known[name].suffix],
        headers={"Cache-Control": assets.FOR_EVER},
    )


def _page(request: Request, kind: str, title: str, **ids: str) -> HTMLResponse:
    root = _root(request)
    text = _templates.get_template("page.html").render(
        kind=kind,
        title=title,
        ids=ids,
        root=root,
        airflow=root.removesuffix(PREFIX),
        static=_static_root(request),
        plotly=f"{root}/static/{assets.plotly_tag()}/{assets.PLOTLY}",
        styled=assets.plotly_styles(),
    )
    return HTMLResponse(text)


def _root(request: Request) -> str:
    """The app's path, with the base path of Airflow's UI before it."""
    return str(request.scope.get("root_path", ""))


def _static_root(request: Request) -> str:
    return f"{_root(request)}/static/{assets.own_tag()}"


async def _guarded(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Say with every answer what its page may load; let no error show what is inside."""
    try:
        response = await answer(request)
    except Exception:
        _log.exception("%s failed.", request.url.path)
        response = _problem(request, 500, f"Something went wrong. {_LOG_SAYS}")
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


async def _unanswered(request: Request, error: Exception) -> Response:
    """A store or a registry that does not answer: its words name paths, and are for the log."""
    _log.error("%s cannot be answered: %s", request.url.path, error)
    return _problem(
        request, 503, f"The store or the model registry cannot be read now. {_LOG_SAYS}"
    )


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnyHTTPException)  # noqa: S101 - for which it is registered
    response = _problem(request, error.status_code, str(error.detail))
    response.headers.update(error.headers or {})
    return response


def _problem(request: Request, status: int, detail: str) -> Response:
    """An error, for a reader where a page was asked for."""
    is_page = "text/html" in request.headers.get("accept", "")
    if not is_page:
        return JSONResponse({"detail": detail}, status)
    base = _root(request).removesuffix(PREFIX)
    login = f"{base}/auth/login?next={quote(str(request.url), safe='')}" if status == 401 else None
    text = _templates.get_template("refused.html").render(
        detail=detail, static=_static_root(request), login=login
    )
    return HTMLResponse(text, status)
