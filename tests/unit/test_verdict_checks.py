"""What checks are made of: programs without a shell, patterns, patches, globs, configs."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.verdicts import scan
from app.verdicts.config import ArbiterConfig, load_config, parse_config
from app.verdicts.git import parse_patch
from app.verdicts.globs import matcher
from app.verdicts.laws import LawsTooLong, number_laws
from app.verdicts.path_subject import open_path, path_hashes
from app.verdicts.process import MAX_OUTPUT, NotRun, clean_environment, run_program
from app.verdicts.subject import count_lines
from app.verdicts.text import clean, shown
from layers.errors import ConfigurationError
from layers.scrubbing import Scrubber

pytestmark = pytest.mark.anyio


async def run(*argv: str, timeout: float = 10, given: bytes | None = None, **env: str) -> tuple[int, str]:
    ended = await run_program(argv, cwd=Path("/"), env=clean_environment(env), timeout=timeout, given=given)
    return ended.code, ended.text


def is_running(word: str) -> bool:
    """Whether a process has `word` among its arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False


# --- programs ---------------------------------------------------------------------------------------------------------


async def test_arguments_are_words_and_no_shell_reads_them() -> None:
    assert await run("printf", "%s|", "$HOME; echo x", "`id`", "a b") == (0, "$HOME; echo x|`id`|a b|")


async def test_a_program_sees_only_what_it_is_given_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "secret")
    monkeypatch.setenv("ARBITER_API_KEYS", "secret")
    _, text = await run("env", EXTRA="1")
    names = {line.partition("=")[0] for line in text.splitlines()}
    assert names <= {"PATH", "HOME", "LANG", "TZ", "EXTRA", "PWD", "SHLVL", "_", "LC_CTYPE"}
    assert "EXTRA" in names


async def test_a_program_out_of_time_is_killed_with_its_children(tmp_path: Path) -> None:
    left = tmp_path / "left"
    script = f"(sleep 1; touch {left}) & sleep 30"
    with pytest.raises(NotRun, match=r"did not end within 0\.2 s"):
        await run("sh", "-c", script, timeout=0.2)
    assert not is_running(str(left))
    assert not left.exists()


async def test_a_cancelled_verdict_leaves_no_program_behind() -> None:
    mark = f"{os.getpid()}.25"
    async with anyio.create_task_group() as group:
        group.start_soon(run, "sleep", mark)
        with anyio.fail_after(10):
            while not is_running(mark):
                await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert not is_running(mark)


@pytest.mark.parametrize("argv", [("/no/such",), ("no-such-program-here",), ("/",), ("bad\0name",)])
async def test_what_cannot_be_started_did_not_run(argv: tuple[str, ...]) -> None:
    with pytest.raises(NotRun, match="could not be started"):
        await run(*argv)


async def test_output_is_bounded_and_says_so() -> None:
    ended = await run_program(
        (sys.executable, "-c", f"print('a' * {MAX_OUTPUT}); print('end')"),
        cwd=Path("/"),
        env=clean_environment({}),
        timeout=20,
    )
    assert ended.cut
    assert len(ended.output) < MAX_OUTPUT + 100
    assert ended.text.endswith("end\n")


async def test_a_signal_is_no_exit_code_and_bytes_are_no_error() -> None:
    assert (await run("sh", "-c", "kill -9 $$"))[0] == -9
    assert await run("printf", r"\377\000x") == (0, "\ufffd\0x")
    assert await run("cat", given=b"x" * 200_000) == (0, "x" * 200_000)
    assert await run("true", given=b"x" * 2_000_000) == (0, "")


# --- text -------------------------------------------------------------------------------------------------------------


def test_output_is_scrubbed_before_it_is_shortened() -> None:
    """A secret that the cut goes through must not be left in two harmless-looking halves."""
    scrubber = Scrubber(["0123456789-secret"])
    for pad in range(60):
        assert "56789-sec" not in clean("x" * pad + "0123456789-secret" * 3 + "y" * 60, scrubber, 60)
    assert clean("a\x1b[2K\u202eb\ud800", scrubber) == "a\ufffd[2K\ufffdb\ufffd"


@given(st.binary(min_size=1, max_size=30))
def test_any_file_name_can_be_shown_on_one_line(name: bytes) -> None:
    text = shown(name)
    assert text.encode()
    assert not re.search(r"[\x00-\x1f\x7f\u202e]", text)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("app/**", ["app/a.py", "app/x/y"], ["apple/a.py", "x/app/a.py"]),
        ("app", ["app", "app/x/y"], ["app.py"]),
        ("*.py", ["a.py"], ["x/a.py", "a.pyc"]),
        ("**/*.py", ["a.py", "x/y/a.py"], ["a.pyc"]),
        ("docs/?.md", ["docs/a.md"], ["docs/ab.md", "docs//.md"]),
        ("a.b", ["a.b"], ["aXb"]),
        ("**", ["a", "x/y\n z"], []),
    ],
)
def test_patterns_name_files(pattern: str, inside: list[str], outside: list[str]) -> None:
    matches = matcher([pattern])
    assert all(map(matches, inside))
    assert not any(map(matches, outside))


def test_the_search_finds_each_pattern_once_a_line_and_counts_all() -> None:
    lines = [["f", n, "print(1); print(2) TODO"] for n in range(1, 31)]
    hits = scan.scan({"patterns": ["print", "TODO"], "lines": lines})
    assert (hits["hits"], len(hits["first"]), hits["first"][0]) == (60, scan.FIRST, ("f", 1, "print"))


def test_a_patch_is_read_by_counting_so_that_content_cannot_pose_as_a_header() -> None:
    patch = (
        b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@ f\n a\n--- a/evil\n+++ b/evil\n+@@ -1 +1 @@\n"
        b'diff --git "a/t\\303\\244\\t\\"b" "b/t"\n--- /dev/null\n+++ "b/t\\303\\244\\t\\"b"\n@@ -0,0 +7 @@\n+z\n'
        b"\\ No newline at end of file\n"
    )
    first, second = parse_patch(patch)
    assert first.name == b"x"
    assert [(line.sign, line.number, line.text) for line in first.lines] == [
        (" ", 1, b"a"),
        ("-", 2, b"-- a/evil"),
        ("+", 2, b"++ b/evil"),
        ("+", 3, b"@@ -1 +1 @@"),
    ]
    assert (second.name, second.lines[0].number) == ('tä\t"b'.encode(), 7)


@given(st.binary(max_size=300))
def test_a_patch_of_any_bytes_is_read_without_an_error(data: bytes) -> None:
    list(parse_patch(data))


@pytest.mark.parametrize(("data", "lines"), [(b"", 1), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"\n\n", 2)])
def test_lines_are_counted_as_an_editor_does(data: bytes, lines: int) -> None:
    assert count_lines(data) == lines


# --- laws and configs -------------------------------------------------------------------------------------------------


def test_laws_are_numbered_by_code_item_by_item() -> None:
    text = "# Layers\n\n- No layer\n  knows another.\n- One port.\n\nSay why.\n\n## Names\n1. Short."
    laws = number_laws([("laws.md", text)])[4:]
    assert [(law.id, law.text) for law in laws] == [
        ("L1", "Layers: No layer knows another."),
        ("L2", "Layers: One port."),
        ("L3", "Layers: Say why."),
        ("L4", "Names: Short."),
    ]
    with pytest.raises(LawsTooLong):
        number_laws([("laws.md", "- x\n" * 201)])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("checks = 1", "checks"),
        ("nonsense = 1", "nonsense"),
        ('[[checks]]\nkind = "command"\nname = "a"\nargv = []', "argv"),
        ('[[checks]]\nkind = "command"\nname = "a"\nargv = "rm -rf /"', "argv"),
        ('[[checks]]\nkind = "shell"\nname = "a"', "checks"),
        ('[[checks]]\nkind = "banned"\nname = "a"\npatterns = ["("]', "patterns"),
        ('[[checks]]\nkind = "scope"\nname = "a"\npaths = ["../x"]', "paths"),
        ('[[checks]]\nkind = "scope"\nname = "a"\npaths = ["x"]\nrange = "--output=x"', "range"),
        ('[[checks]]\nkind = "baseline"\nname = "a"\nargv = ["x"]\npattern = "e"', "known"),
        ('[[checks]]\nkind = "command"\nname = "a"\nargv = ["x"]\ntimeout = 0', "timeout"),
        ('[[checks]]\nkind = "command"\nname = "a"\nargv = ["x"]\n' * 2, "two are called a"),
        ("confidence_floor = 1.5", "confidence_floor"),
        ("confidence_floor = nan", "confidence_floor"),
        ('laws = ["/etc/passwd"]', "laws"),
        ('[[checks]]\nkind = "command"\nname = "a"\nargv = ["x"]\ncould_not_run_codes = [0]', "could_not_run_codes"),
        ("a = [", "TOML"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_by_name(text: str, names: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(names)):
        parse_config(text.encode(), "arbiter.toml")


def test_a_config_asks_for_a_model_unless_it_says_otherwise() -> None:
    assert (ArbiterConfig().holistic, ArbiterConfig().rules) == ("required", "fixed")


def test_a_config_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"arbiter\.toml cannot be read"):
        load_config(tmp_path / "arbiter.toml")


@pytest.mark.parametrize(
    ("text", "says"),
    [('laws = ["none.md"]', "laws: there is no file none.md"), ('root = "nowhere"', "root: .*nowhere is no folder")],
)
def test_files_that_a_config_needs_must_be_there(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "arbiter.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=says):
        load_config(tmp_path / "arbiter.toml")


# --- runs ---------------------------------------------------------------------------------------------------------

PROFILES = """
from app.systems import load_profiles
from app.verdicts.run_subject import profile_content
from layers.canonical import canonical_bytes, sha256_of
print(sha256_of(canonical_bytes([profile_content(one) for _, one in sorted(load_profiles(None).items())])))
"""


async def test_every_process_hashes_a_profile_alike() -> None:
    """Sets have another order in each process; a block must not be lost by a restart."""
    root = str(Path(scan.__file__).parents[2])
    seeds = [
        await run(sys.executable, "-c", PROFILES, PYTHONPATH=root, PYTHONHASHSEED=str(seed)) for seed in range(1, 5)
    ]
    assert seeds[0][0] == 0
    assert len(set(seeds)) == 1


# --- paths ------------------------------------------------------------------------------------------------------------


async def test_a_path_is_known_by_names_and_content_alone(tmp_path: Path) -> None:
    (tmp_path / "a" / ".git").mkdir(parents=True)
    (tmp_path / "a" / "f").write_text("1")
    first = path_hashes(tmp_path / "a")
    os.utime(tmp_path / "a" / "f", (1, 1))
    (tmp_path / "a" / ".git" / "x").write_text("1")
    artifact = (await open_path(tmp_path / "a")).artifact
    assert path_hashes(tmp_path / "a") == first == (artifact.sha256, artifact.exact_sha256)
    changes = (
        lambda: (tmp_path / "a" / "f").write_text("2"),
        lambda: (tmp_path / "a" / "f").rename(tmp_path / "a" / "g"),
        lambda: (tmp_path / "a" / "l").symlink_to("/etc/passwd"),
        lambda: os.mkfifo(tmp_path / "a" / "pipe"),
    )
    seen = {first}
    for change in changes:
        change()
        seen.add(path_hashes(tmp_path / "a"))
    assert len({one.content for one in seen}) == len({one.exact for one in seen}) == len(changes) + 1


@pytest.mark.parametrize("kind", ["file", "folder"])
async def test_its_own_name_and_executable_bits_are_no_content_of_a_path(tmp_path: Path, kind: str) -> None:
    """They stand in the exact hash, by which a check that changes them is found out."""
    own = tmp_path / "a"
    file = own if kind == "file" else own / "f"
    file.parent.mkdir(exist_ok=True)
    file.write_text("1")
    subject = await open_path(own)
    file.chmod(0o755)
    assert await subject.hash_now() != subject.artifact.exact_sha256
    renamed = await open_path(own.rename(tmp_path / "b"))
    assert renamed.artifact.sha256 == subject.artifact.sha256
    assert renamed.artifact.exact_sha256 != subject.artifact.exact_sha256


def test_a_file_is_not_the_folder_that_holds_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a").write_text("1")
    assert path_hashes(tmp_path / "a").content != path_hashes(tmp_path / "a" / "a").content


async def test_hostile_names_are_hashed_shown_and_found(tmp_path: Path) -> None:
    for name in (b"new\nline", b"\xff\xfe", b"-rf", b"a:3", b"\x1b[2K", b'"q"'):
        await anyio.Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("one\ntwo\n")
    subject = await open_path(tmp_path)
    names = [str(piece["file"]) for piece in await subject.material()]
    assert sorted(names) == sorted(['"q"', "-rf", "\\x1b[2K", "a:3", "new\\nline", "\\xff\\xfe"])
    for name in names:
        assert await subject.holds(f"{name}:2")
        assert not await subject.holds(f"{name}:3")
        assert await subject.holds(name)
    for place in (
        "",
        ":",
        "a",
        "a:3:3",
        "../x:1",
        "..",
        ".",
        "/etc/passwd",
        "/etc/passwd:1",
        "-rf:0",
        "-rf:-1",
        "-rf:٣",
        "-rf:" + "9" * 30,
    ):
        assert not await subject.holds(place)


def test_the_example_in_the_documentation_can_be_used() -> None:
    """From the folder of the project, where its programs find what they check, with laws that fit into a question."""
    project = Path(scan.__file__).parents[2]
    loaded = load_config(project / "docs" / "arbiter.toml")
    assert loaded.root == project
    assert (loaded.root / "pyproject.toml").is_file()
    assert len(number_laws((name, (loaded.root / name).read_text()) for name in loaded.config.laws)) > 4
    assert [check.name for check in loaded.config.checks] == ["tests", "types", "scope", "debugging"]
