"""What a model is given beside messages: the compiled prompt, and the agent's memory."""

from starlette.requests import Request
from starlette.responses import Response

from lettaspace.viewer.memory import asked_path, commit_page, file_page, memory_page
from lettaspace.viewer.prompt import prompt_page
from lettaspace.viewer.site import page_number, site


def prompt(request: Request) -> Response:
    here = site(request)
    version, rkey = here.version, request.path_params["rkey"]
    context = prompt_page(here.space, here.letta, rkey, redact=here.redact)
    return here.page("prompt.html", version=version, **context)


def memory(request: Request) -> Response:
    here = site(request)
    agent, number = request.path_params["agent"], page_number(request)
    context = memory_page(here.space, here.letta, agent, number=number, redact=here.redact)
    return here.page("memory.html", **context)


def memory_file(request: Request) -> Response:
    here = site(request)
    context = file_page(
        here.space,
        here.letta,
        request.path_params["agent"],
        asked_path(request.scope["query_string"]),
        request.query_params.get("at"),
        number=page_number(request),
        redact=here.redact,
    )
    return here.page("memory_file.html", **context)


def memory_commit(request: Request) -> Response:
    here = site(request)
    agent, revision = request.path_params["agent"], request.path_params["revision"]
    context = commit_page(here.space, here.letta, agent, revision, redact=here.redact)
    return here.page("commit.html", **context)
