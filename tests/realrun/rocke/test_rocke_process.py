"""What goes wrong around a checkout: directories, commits, and a process that dies, hangs or talks rubbish."""

import pytest

from kernbench.errors import InputError
from kernbench.realrun.rocke.checkout import WITHIN_REPOSITORY, find_layout
from kernbench.realrun.rocke.crosscheck import cross_check
from tests.realrun.rocke.copies import KERNELS, SPARSE, STANDIN, append, commit, copy_to
from tests.realrun.test_commands import assert_bad_input

LEAST = {"specs": 3, "execute": 0, "seconds": 30}
RULE = "def is_valid_vsa_spec(spec, arch='gfx950'):\n    import os, signal, time, sys\n    {}\n"


@pytest.mark.parametrize(
    ("gone", "says"),
    [("library", "no library/kernels"), ("platform", "no platform/python/rocke"), (".", "no such directory")],
)
def test_a_directory_without_the_parts_is_refused(tmp_path, gone, says):
    root = copy_to(tmp_path)
    (root / gone).rename(tmp_path / "elsewhere")
    assert_bad_input("rocke", "--rocke", root, says=says)


def test_an_architecture_that_cannot_be_executed_is_refused():
    assert_bad_input("rocke", "--rocke", STANDIN, "--arch", "gfx95", says="did you mean 'gfx950'?")


def test_the_repository_may_be_named_and_older_spelling_is_known(tmp_path):
    (tmp_path / WITHIN_REPOSITORY.parent).mkdir(parents=True)
    root = copy_to(tmp_path).rename(tmp_path / WITHIN_REPOSITORY)
    (root / "platform/python").rename(root / "platform/Python")
    layout = find_layout(tmp_path)
    assert (layout.root, layout.platform, layout.commit) == (root, root / "platform/Python", None)
    assert cross_check(tmp_path, **LEAST).differences == []


def test_the_commit_is_recorded_and_changes_are_told(tmp_path):
    root = copy_to(tmp_path)
    made = commit(root)
    assert (find_layout(root).commit, find_layout(root).changed) == (made, False)
    append(root, KERNELS, "# changed\n")
    assert (find_layout(root).commit, find_layout(root).changed) == (made, True)


def test_a_repository_that_merely_surrounds_the_checkout_is_not_its_commit(tmp_path):
    (tmp_path / "other.txt").write_text("")
    commit(tmp_path)
    assert find_layout(copy_to(tmp_path)).commit is None


def test_parts_of_unlike_commits_are_refused(tmp_path):
    one, other = (copy_to(tmp_path / name) for name in ("one", "other"))
    append(other, KERNELS, "# newer\n")
    commits = commit(one), commit(other)
    (one / "library").rename(tmp_path / "elsewhere")
    (one / "library").symlink_to(other / "library")
    with pytest.raises(InputError, match=f"platform is of {commits[0]} and library of {commits[1]}"):
        find_layout(one)


def test_a_checkout_that_cannot_be_imported_says_why(tmp_path):
    root = copy_to(tmp_path)
    append(root, KERNELS, "import a_module_that_is_missing\n")
    assert_bad_input("rocke", "--rocke", root, says="No module named 'a_module_that_is_missing'")


def test_a_checkout_without_a_function_says_which(tmp_path):
    root = copy_to(tmp_path)
    append(root, KERNELS, "del is_valid_vsa_spec, vsa_sparse_attention_grid\n")
    with pytest.raises(InputError, match="kernels has no is_valid_vsa_spec, vsa_sparse_attention_grid"):
        cross_check(root, **LEAST)


def test_another_package_does_not_pass_for_the_checkout(tmp_path):
    root = copy_to(tmp_path)
    append(root, KERNELS, "import json, sys\nsys.modules['rocke.helpers.qk_scale'] = json\n")
    with pytest.raises(InputError, match=r"qk_scale was imported from .*json.*, which is not in the checkout"):
        cross_check(root, **LEAST)


DEATHS = {
    "print('the end', file=sys.stderr); os._exit(3)": "VsaSparse.*ended with code 3; it last wrote:.*the end",
    "os.kill(os.getpid(), signal.SIGKILL)": "VsaSparse.*killed by signal 9",
    "talk()": "VsaSparse.*answered what is no answer: 'hello",
}
TALK = """
def talk():
    import contextlib, os
    for stream in range(3, 20):
        with contextlib.suppress(OSError):
            os.write(stream, b'hello\\n')
"""


@pytest.mark.parametrize("act", DEATHS)
def test_a_process_that_ends_badly_is_told(tmp_path, act):
    root = copy_to(tmp_path)
    append(root, SPARSE, TALK + RULE.format(act))
    with pytest.raises(InputError, match=DEATHS[act]):
        cross_check(root, **LEAST)


def test_a_process_that_hangs_is_stopped(tmp_path):
    root = copy_to(tmp_path)
    append(root, SPARSE, RULE.format("time.sleep(600)"))
    with pytest.raises(InputError, match=r"no answer within 1 s"):
        cross_check(root, **LEAST | {"seconds": 1})
