"""What the pipeline's suites share: a folder with a pipeline in it, and what its store says of each step."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import tandem_run
from tandem_run import TandemTest


class PipelineTest(TandemTest):
    def write_pipeline(self, steps, name="pipeline.yaml", **keys):
        """JSON is YAML."""
        path = self.directory / name
        path.write_text(json.dumps({**keys, "steps": steps}, indent=1))
        return path

    def run_pipeline(self, *arguments, file="pipeline.yaml", **options):
        return self.tandem("pipeline", "run", file, *arguments, **options)

    def status(self, file="pipeline.yaml", *arguments):
        """{name: what status --json says} of every step."""
        told = json.loads(self.tandem("pipeline", "status", file, "--json", *arguments).out)
        return {step["step"]: step for step in told["steps"]}

    def states(self, file="pipeline.yaml", *arguments):
        return {name: step["state"] for name, step in self.status(file, *arguments).items()}

    def records(self):
        """{path in the store: bytes} of every finished step."""
        return {str(path.relative_to(self.directory)): path.read_bytes() for path in self.directory.glob("artifacts/*/record.json")}

    def ran(self, result):
        """The steps that a run started, in order."""
        return [line.split(": ")[0] for line in result.err.splitlines() if ": started (" in line or ": goes on (" in line]
