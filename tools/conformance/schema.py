"""`pesc serve` against a description of OpenAI's API: schemathesis makes requests from it, right and wrong ones, and no answer may be a
server error, have a status or a type that is not described, or a body that does not fit its schema.

PESC_OPENAPI names the description (JSON, cut to the paths that the server has); without it nothing is run. PESC_CASES is the number of
requests, 2,000 by default: those with a body share it, the others have few cases. The errors of docs/serve.md, the type of streams, the null
that the first token of an echo has and the model's name are added to the description, which lacks them."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/serve"))
from running import Server  # noqa: E402

ERRORS = ("400", "404", "405", "413", "415", "431")
# schemathesis steers hypothesis to requests that succeed, and that search takes nearly all of the time.
HOOKS = "import hypothesis\n\nhypothesis.target = lambda *observation, **label: observation[0]\n"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def main():
    path = os.environ.get("PESC_OPENAPI")
    if not path:
        print("skipped: PESC_OPENAPI names no description")
        return 0
    api = json.loads(pathlib.Path(path).read_text())
    operations = [o for p in api["paths"].values() for o in p.values()]
    for o in operations:
        for status in ERRORS:
            o["responses"].setdefault(status, {"description": "an error"})
        if "requestBody" in o:
            o["responses"]["200"]["content"]["text/event-stream"] = {}  # its schema is that of the data; schemathesis compares the whole event
    schemas, name = api["components"]["schemas"], {"type": "string", "enum": ["base"]}
    schemas["CreateCompletionRequest"]["properties"]["model"] = schemas["ModelIdsShared"] = name  # most requests get beyond the name
    choice = schemas["CreateCompletionResponse"]["properties"]["choices"]["items"]["properties"]
    arrays = next(s for s in choice["logprobs"]["anyOf"] if "properties" in s)["properties"]
    for name in ("token_logprobs", "top_logprobs"):
        arrays[name]["items"] = {"anyOf": [arrays[name]["items"], {"type": "null"}]}  # of the first token of an echo
    cases = int(os.environ.get("PESC_CASES", "2000"))
    each = cases // sum("requestBody" in o for o in operations) + 1
    with tempfile.TemporaryDirectory() as d, Server(str(ROOT / "share/base"), "--chat-format", "vicuna", "--context", "128") as s:
        described = pathlib.Path(d) / "openapi.json"
        described.write_text(json.dumps(api))
        (pathlib.Path(d) / "hooks.py").write_text(HOOKS)
        run = subprocess.run([pathlib.Path(sys.executable).parent / "schemathesis", "run", described, "--url", f"http://127.0.0.1:{s.port}",
                              "--checks", CHECKS, "--phases", "coverage,fuzzing", "-n", str(each), *sys.argv[1:]], cwd=d, check=False,
                             env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": d})
        assert s.process.poll() is None, "the server has ended"
        _, _, metrics = s.ask("GET", "/metrics")
        answered = sum(int(n) for n in re.findall(r"^pesc_requests_total{.*} (\d+)$", metrics.decode(), re.M))
        print(f"{answered} requests were answered")
        assert answered >= cases, "too few requests were sent"
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
