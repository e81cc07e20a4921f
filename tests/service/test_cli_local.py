"""Commands on one's own store, where the service that they ask lives in their own process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEYS = "ci:submit+read:cisecret-0123456789abcdef"
ROW = {"id": "a", "expected_label": "low", "prediction": {"raw_output": {}, "label": "low", "confidence": 1}}


def arbiter(folder: Path, *arguments: str, **env: str) -> tuple[int, str, str]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **env}
    command = [sys.executable, "-m", "app.cli", *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one run, made without a word of keys; whose id stands in `run`."""
    folder = tmp_path_factory.mktemp("local")
    (folder / "rows.ndjson").write_text(json.dumps(ROW) + "\n")
    (folder / "policy.toml").write_text("[[regressions]]\n")
    (folder / "arbiter.toml").write_text('[[checks]]\nkind = "command"\nname = "c"\nargv = ["true"]\n')
    (folder / "aml.md").write_text("# AML\n\nReport what is split.\n")
    code, out, err = arbiter(folder, "--system", "recorded", "--fixture", "rows.ndjson")
    assert code == 0, err
    (folder / "run").write_text(out.split()[-1])
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "runs list",
        "gate RUN --policy policy.toml --baseline RUN",
        *(
            pytest.param(command, marks=pytest.mark.slow)
            for command in (
                "--system recorded --fixture rows.ndjson",
                "runs show RUN",
                "runs report RUN -o report.json",
                "compare RUN --baseline RUN",
                "baselines list",
                "critic report RUN",
                "verdict --artifact RUN --config arbiter.toml",
                "ingest aml.md",
            )
        ),
    ],
)
def test_a_local_command_needs_no_key(folder: Path, command: str) -> None:
    """Keys are for those who call from outside; whoever runs a command here has the store itself."""
    arguments = command.replace("RUN", (folder / "run").read_text()).split()
    code, _, err = arbiter(folder, *arguments, ARBITER_API_KEYS=KEYS)
    assert "API key" not in err
    assert "Traceback" not in err
    assert (code, err) == arbiter(folder, *arguments)[::2]


def test_keys_in_the_env_file_lock_nobody_out_either(folder: Path, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"ARBITER_API_KEYS={KEYS}\n")
    code, out, err = arbiter(tmp_path, "--system", "recorded", "--fixture", str(folder / "rows.ndjson"))
    assert code == 0, err
    assert out.startswith("accuracy: 1/1")
