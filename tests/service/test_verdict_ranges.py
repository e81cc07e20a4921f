"""Ranges of commits as artifacts: what is looked at, and what can't be hidden from it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.errors import NotFound, Unprocessable
from app.verdicts.config import load_config
from app.verdicts.model import Decision, GivenVerdict, ReasonKind
from tests.verdicts import FAILS, OPTIONAL, PASSES, Arbiter, Repository, arbiter_in, kinds, results

pytestmark = pytest.mark.anyio


@pytest.fixture
async def arbiter(tmp_path: Path) -> AsyncIterator[Arbiter]:
    """One without a model."""
    async with arbiter_in(tmp_path) as made:
        yield made


SCOPE = '[[checks]]\nkind = "scope"\nname = "scope"\npaths = ["src/**", "*.md"]\n'
BANNED = '[[checks]]\nkind = "banned"\nname = "banned"\npatterns = ["TODO"]\n'


async def in_repository(
    arbiter: Arbiter, repository: Repository, text: str, what: str = "HEAD~1..HEAD"
) -> GivenVerdict:
    return await arbiter.service.give(arbiter.config(OPTIONAL + text), what, base=repository.folder)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


async def test_scope_and_banned_patterns_look_at_what_the_range_changes(
    arbiter: Arbiter, repository: Repository
) -> None:
    repository.commit({"src/b.py": "# TODO old\n"})
    repository.commit({"src/b.py": "# TODO old\ny = 2\n", "README.md": "hi\n"})
    assert (await in_repository(arbiter, repository, SCOPE + BANNED)).verdict is Decision.ACCEPT
    repository.commit({"src/b.py": "# TODO old\ny = 2\n# TODO new\n", "setup.py": ""})
    verdict = await in_repository(arbiter, repository, SCOPE + BANNED)
    details = {check.name: check.detail for check in verdict.objective_checks}
    assert details["scope"] == "1 of 2 changed files lie outside the declared paths\nsetup.py"
    assert details["banned"] == "1 banned patterns found\nsrc/b.py:3: TODO"


async def test_a_file_cannot_hide_behind_its_name_its_attributes_or_a_rename(
    arbiter: Arbiter, repository: Repository
) -> None:
    repository.commit(
        {
            'src/\nTODO\t"x".py': "a = 'TODO'\n",
            b"src/\xff.py".decode(errors="surrogateescape"): "TODO\n",
            "src/.gitattributes": "*.bin binary\n*.py -diff\n",
            "src/x.bin": "TODO\n",
            "src/ +++ b": "--- a/src/x\n+++ b/src/x\nTODO\n",
        }
    )
    verdict = await in_repository(arbiter, repository, SCOPE + BANNED)
    banned = next(check for check in verdict.objective_checks if check.name == "banned")
    assert banned.detail.startswith("4 banned patterns found")
    assert results(verdict)["scope"] == (True, "pass")
    repository.git("mv", "src/a.py", "outside.py")
    repository.commit({})
    assert results(await in_repository(arbiter, repository, SCOPE))["scope"] == (True, "fail")


async def test_programs_do_not_run_in_a_working_tree_that_is_something_else(
    arbiter: Arbiter, repository: Repository
) -> None:
    repository.commit({"src/a.py": "x = 2\n"})
    assert (await in_repository(arbiter, repository, PASSES)).verdict is Decision.ACCEPT
    (repository.folder / "conftest.py").write_text("cheat")
    verdict = await in_repository(arbiter, repository, PASSES)
    assert kinds(verdict) == [ReasonKind.COULD_NOT_RUN]
    assert "conftest.py" in verdict.reasons[0].detail
    (repository.folder / "conftest.py").unlink()
    repository.commit({"src/a.py": "x = 3\n"})
    assert kinds(await in_repository(arbiter, repository, PASSES, "HEAD~2..HEAD~1")) == [ReasonKind.COULD_NOT_RUN]


async def test_an_artifact_may_not_change_what_it_is_judged_by(arbiter: Arbiter, repository: Repository) -> None:
    for rules, passes in (("", False), ('rules = "may_change"\n', True)):
        repository.commit({"arbiter.toml": rules + OPTIONAL + PASSES})
        loaded = load_config(repository.folder / "arbiter.toml")
        verdict = await arbiter.service.give(loaded, "HEAD~1..HEAD", base=repository.folder)
        assert (verdict.verdict is Decision.ACCEPT) is passes
        assert results(verdict).get("rules") == (None if passes else (True, "fail"))


async def test_a_range_that_changes_nothing_gives_a_scope_nothing_to_pass(
    arbiter: Arbiter, repository: Repository
) -> None:
    """The check's own range, that is; an artifact that changes nothing is none."""
    repository.commit({"src/b.py": "y = 2\n"})
    scope = f'{SCOPE}range = "HEAD..HEAD"\n'
    config = repository.folder.parent / "arbiter.toml"
    config.write_text(f'root = "{repository.folder}"\n{OPTIONAL}{scope}')
    verdict = await arbiter.service.give(load_config(config), "HEAD~1..HEAD")
    (scoped,) = [check for check in verdict.objective_checks if check.name == "scope"]
    assert (scoped.ran, scoped.detail) == (False, "the range changes nothing")


@pytest.mark.parametrize("what", ["HEAD~9..HEAD", "--output=x..HEAD", "nowhere", "a\0b", "x...y..z", "HEAD..$(id)"])
async def test_what_is_no_artifact_is_refused(arbiter: Arbiter, repository: Repository, what: str) -> None:
    with pytest.raises((NotFound, Unprocessable)):
        await in_repository(arbiter, repository, PASSES, what)


async def test_a_new_message_does_not_make_another_artifact(arbiter: Arbiter, repository: Repository) -> None:
    repository.commit({"src/a.py": "bad\n"})
    first = await in_repository(arbiter, repository, FAILS)
    repository.git("commit", "-q", "--amend", "-m", "please accept", "--date", "2001-01-01T00:00:00Z")
    again = await in_repository(arbiter, repository, PASSES)
    assert (again.verdict_id, again.replayed) == (first.verdict_id, True)
    repository.commit({"src/a.py": "good\n"})
    assert (await in_repository(arbiter, repository, PASSES, "HEAD~2..HEAD")).verdict is Decision.ACCEPT


async def test_a_range_that_changes_nothing_is_nothing_to_judge(arbiter: Arbiter, repository: Repository) -> None:
    """It is no verdict, so that nothing is logged that would bind."""
    for what in ("HEAD..HEAD", "main...HEAD"):
        with pytest.raises(NotFound, match="changes nothing"):
            await in_repository(arbiter, repository, SCOPE, what)
    assert (await arbiter.service.list()).items == ()
