"""`kernbench accuracy`: what formats and masks cost, held against float64."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from kernbench.accuracy import BLOCK, DENSITIES, FORMATS, accuracy_table, inputs_for_accuracy
from kernbench.cli import app
from kernbench.errors import InputError


@pytest.fixture(scope="module")
def part():
    """The first 256 tokens of layer 2 and three of its query heads, which share a key/value head."""
    whole = inputs_for_accuracy()["layer 2"]
    return {"q": whole["q"][:256, :3], "k": whole["k"][:256, :1], "v": whole["v"][:256, :1]}


@pytest.fixture(scope="module")
def rows(part):
    return accuracy_table({"part": part})


def mean_error(rows, name, density=None):
    return np.mean([r.rel_l2 for r in rows if r.format == name and r.density == density])


def causal_attention(q, k, v):
    """One query after the other, in float64."""
    out = np.empty((len(q), v.shape[1]))
    for t in range(len(q)):
        s = k[: t + 1].astype(np.float64) @ q[t].astype(np.float64) / np.sqrt(q.shape[1])
        p = np.exp(s - s.max())
        out[t] = p @ v[: t + 1].astype(np.float64) / p.sum()
    return out


def test_every_format_and_density_has_a_row_for_every_head(rows):
    assert len(rows) == 3 * (len(FORMATS) + len(DENSITIES))


def test_int8_is_what_a_plain_computation_gives(part, rows):
    def through(x):
        scale = np.float32(np.abs(x.astype(np.float64)).max() / 127)
        return np.round(x.astype(np.float64) / scale).clip(-128, 127) * scale

    q, k, v = part["q"][:, 1], part["k"][:, 0], part["v"][:, 0]
    right, found = causal_attention(q, k, v), causal_attention(q, through(k), through(v))
    error = np.linalg.norm(found - right) / np.linalg.norm(right)
    row = next(r for r in rows if r.format == "i8" and r.head == 1)
    assert row.rel_l2 == pytest.approx(error, rel=0.02)  # the table also rounds probabilities and output to f16


def test_wider_formats_are_closer_and_rotation_helps(rows):
    order = ["f16", "bf16", "i8", "ultraquant", "ultraquant, unrotated"]
    errors = [mean_error(rows, name) for name in order]
    assert errors == sorted(errors)
    assert errors[0] < 5e-4
    assert mean_error(rows, "i8") < mean_error(rows, "i4")
    assert mean_error(rows, "bf16") < mean_error(rows, "fp8e4m3") < mean_error(rows, "i4")


def test_masks_that_keep_more_are_closer(rows):
    errors = [mean_error(rows, "jenga/vsa", d) for d in DENSITIES]
    assert errors[-1] < errors[len(errors) // 2] < errors[0]


def test_a_file_can_take_the_place_of_the_captured_inputs(tmp_path):
    random = np.random.default_rng(0)
    heads = {"q": 2, "k": 1, "v": 1}
    arrays = {n: random.standard_normal((2 * BLOCK, h, 32)).astype(np.float16) for n, h in heads.items()}
    np.savez(tmp_path / "mine.npz", **arrays)
    picture, table = tmp_path / "a.png", tmp_path / "a.json"
    options = ["--inputs", str(tmp_path / "mine.npz"), "--plot", str(picture), "--json", str(table)]
    result = CliRunner().invoke(app, ["accuracy", *options])
    assert result.exit_code == 0, result.output
    assert "ultraquant, unrotated" in result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = json.loads(table.read_text())
    assert {row["format"] for row in found} == {*FORMATS, "jenga/vsa"}


def test_a_file_of_the_wrong_shape_is_refused(tmp_path):
    arrays = {n: np.ones((65, 1, 32), np.float16) for n in "qkv"}
    np.savez(tmp_path / "odd.npz", **arrays)
    with pytest.raises(InputError, match="whole blocks of 64 tokens"):
        inputs_for_accuracy(str(tmp_path / "odd.npz"))
