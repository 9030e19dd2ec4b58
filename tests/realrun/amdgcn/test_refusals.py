"""Text that is broken, and kernels that do what they must not, end with a message that names the line."""

import contextlib
import gzip

import numpy as np
import pytest

from kernbench.errors import InputError, KernbenchError, KernelError
from kernbench.realrun import amdgcn
from tests.realrun.amdgcn.written import FIXTURES, POINTER, STORE, WORD, kernel_text

WHOLE = (FIXTURES / "vec_copy.gfx942.s").read_text()


def run(body, args=None, block=64, arguments=(POINTER,), max_instructions=10000, strict=True, **parts):
    kernel = amdgcn.load(kernel_text(body, arguments, **parts))["k"]
    out = np.zeros(block, np.uint32)
    kernel.launch(1, block, [out] if args is None else args, strict=strict, max_instructions=max_instructions)
    return out


def test_another_architecture_is_refused():
    with pytest.raises(InputError, match="compiled for gfx942, not for gfx950"):
        amdgcn.load(WHOLE, "gfx950")


def test_an_unknown_architecture_is_refused():
    with pytest.raises(InputError, match="'amdgcn-amd-amdhsa--gfx1100' cannot be executed"):
        amdgcn.load(WHOLE.replace("gfx942", "gfx1100"))


@pytest.mark.parametrize("part", ["amdgcn_target", ".amdhsa_user_sgpr_count", ".args", "kernarg_segment_size"])
def test_truncated_text_is_refused(part):
    with pytest.raises(InputError):
        amdgcn.load(WHOLE[: WHOLE.index(part)] + "\n")


def test_a_truncated_archive_is_refused(tmp_path):
    path = tmp_path / "k.s.gz"
    path.write_bytes(gzip.compress(WHOLE.encode())[:500])
    with pytest.raises(InputError, match=r"k\.s\.gz: cannot be read"):
        amdgcn.load(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    .name:           vec_copy", "    .name:           other", "kernel 'other' has no descriptor"),
        (
            "    .kernarg_segment_size: 288",
            "    .kernarg_segment_size: 20",
            "20 bytes of arguments, the descriptor has 288",
        ),
        ("    .kernarg_segment_size: 288", "    .kernarg_segment_size: many", "kernarg_segment_size is no number"),
        ("    .kernarg_segment_size: 288", "    .kernarg_segment_size: 2024-13-45", "malformed"),
        ("        .offset:         8\n", "        .offset:         4\n", "begins at byte 4, inside"),
        ("        .offset:         8\n", "        .offset:         2800\n", "ends at byte"),
        (".value_kind:     by_value", ".value_kind:     by_vale", "did you mean 'by_value'"),
        (".value_kind:     hidden_group_size_x", ".value_kind:     hidden_group_size_q", "which is not known"),
        ("amdhsa.kernels:", "amdhsa.kernels: [", "not YAML"),
        ("amdhsa.kernels:", "amdhsa.others:", "malformed"),
        (
            "    .kernarg_segment_size: 288",
            "    .kernarg_segment_size: 288\n" * 2,
            "'.kernarg_segment_size' comes twice",
        ),
    ],
)
def test_malformed_metadata_are_refused(old, new, message):
    assert old in WHOLE
    with pytest.raises(InputError, match=message):
        amdgcn.load(WHOLE.replace(old, new))


def changed(old, new):
    assert old in WHOLE
    return WHOLE.replace(old, new, 1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("amdhsa_accum_offset", "amdhsa_acum_offset", "did you mean 'accum_offset'"),
        ("amdhsa_user_sgpr_count", "amdhsa_ieee_mode 1\n\t\t.amdhsa_ieee_mode", "ieee_mode is repeated"),
        ("amdhsa_system_vgpr_workitem_id 0", "amdhsa_system_vgpr_workitem_id 3", "is 3, not from 0 to 2"),
        ("amdhsa_group_segment_fixed_size 0", "amdhsa_group_segment_fixed_size x", "'x' is not a number"),
        (".amdhsa_accum_offset 4\n", "\n", "vec_copy has no .amdhsa_accum_offset"),
        (".end_amdhsa_kernel", ".end_amdhsa_kernel\n\t.amdhsa_ieee_mode 1", "outside .amdhsa_kernel"),
        (".end_amdhsa_kernel", ".end_amdhsa_kernel\n\t.amdhsa_kernel vec_copy", "vec_copy comes again"),
        ("\ts_endpgm", "vec_copy:\n\ts_endpgm", "label vec_copy comes again"),
        ("\ts_endpgm", "\t.rept 3\n\ts_endpgm", ".rept is not supported"),
        ("\t.text", '\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\n\t.text', "comes behind code, or again"),
    ],
)
def test_contradictory_text_is_refused(old, new, message):
    with pytest.raises(InputError, match=message):
        amdgcn.load(changed(old, new))


def test_data_are_not_executed():
    with pytest.raises(KernelError, match=r"<text>:4: \.long 0xbf800000: data are executed"):
        run("\t.long 0xbf800000")


def test_a_damaged_archive_is_refused(tmp_path):
    packed = gzip.compress(WHOLE.encode())
    path = tmp_path / "k.s.gz"
    for at in range(0, len(packed), 7):
        path.write_bytes(packed[:at] + bytes([packed[at] ^ 0x55]) + packed[at + 1 :])
        with contextlib.suppress(InputError):
            amdgcn.load(path)


def test_more_memory_than_the_hardware_has_is_refused():
    with pytest.raises(InputError, match="70000 bytes of LDS, a workgroup on gfx942 has 65536"):
        run("", lds=70000)
    with pytest.raises(InputError, match="200000 bytes of scratch a lane, at most 131056"):
        run("", scratch=200000)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "\tv_frobnicate_b32 v0, v1",
            r"<text>:4: v_frobnicate_b32 v0, v1: instruction v_frobnicate_b32 is not supported",
        ),
        ("\tv_add_u33_e32 v0, v1, v2", "did you mean 'v_add_u32'"),
        ("\tv_add_u32_e32 v0, v1", "has 2 operands, takes 3"),
        ("\tv_add_u32_e32 v0, v1, v256", "outside the 256 registers"),
        ("\tv_add_u32_e32 s0, v1, v2", "cannot be written by lanes"),
        ("\tv_add_u32_e32 v0, v1, q2", "'q2' is not understood"),
        ("\tv_add_i32 v0, v1, v2 clamp", "clamp of integers"),
        ("\ts_branch .LBB0_9", "jumps to '.LBB0_9', which is no label"),
        ("\ts_waitcnt soon", "expected vmcnt"),
        ("\tglobal_load_dwordx2 v[0:2], v[4:5], off", "is not 2 vector registers"),
        ("\tglobal_load_dword v0, v[4:5], off offset:x", "is not a number"),
        ("\tv_permlane32_swap_b32_e32 v0, v1", "is an instruction of gfx950"),
        ("\tv_cndmask_b32_e64 v0, v1, v2", "has 3 operands, takes 4"),
        ("\tv_cndmask_b32_e32 v0, v1, v2, s3", "is not 2 scalar registers"),
        ("\tv_mov_b32_e32 v0, s102", "outside the 102 registers"),
        ("\tv_mov_b64_e32 v[1:2], 0", "2 registers begin at a multiple of 2"),
        ("\ts_load_dwordx4 s[2:5], s[0:1], 0x0", "4 registers begin at a multiple of 4"),
        ("\ts_movk_i32 s4, 0x10000", "has more than 16 bits"),
        ("\ts_cmpk_lt_u32 s4, 0x12345", "has more than 16 bits"),
        ("\tv_mov_b32_e32 v0, 0x123456789", "has more than 32 bits"),
        ("\tv_add_u32_e32 v0, v1, v[2:3]", "must be one register"),
        ("\tv_add_f32_e64 -v0, v1, v2", "cannot be written by lanes"),
        ("\ts_mov_b32 s[4:5], 0", "is not 1 scalar register"),
        ("\ts_add_u32 s4, s[6:7], 1", "must be one register"),
        ("\ts_waitcnt vmcnt(64)", "vmcnt counts to 63"),
        ("\ts_waitcnt vmcnt(1) lgkmcnt", "expected vmcnt"),
        ("\tv_writelane_b32 s4, s5, 0", "is not 1 vector register"),
        ("\tv_readfirstlane_b32 s4, 5", "is not 1 vector register"),
        ("\tv_swap_b32 v0, s4", "is not 1 vector register"),
        ("\tds_bpermute_b32 s4, v1, v2", "is not 1 vector register"),
        ("\tds_read_b32 v1, 5", "is not 1 vector register"),
        ("\tds_read_b32 v1, v2 offset:65536", "offset 65536 is not from 0 to 65535"),
        ("\tds_read2_b32 v[4:5], v2 offset0:256", "offset0 256 is not from 0 to 255"),
        ("\tds_read_b32 v1, v2 offset:4 offset:8", "offset is repeated"),
        ("\tglobal_load_dword v0, v[4:5], off offset:4096", "is not from -4096 to 4095"),
        ("\tglobal_load_dword v0, v4, s5", "must be a pair of scalar registers"),
        ("\tscratch_load_dword v0, off, 5", "neither a scalar register nor 'off'"),
        ("\tbuffer_load_dword v0, v1, s[4:7], 0", "'offen'"),
        ("\ts_load_dword s4, s[0:1], 0x100000", "no offset of 21 bits"),
        ("\tv_mov_b32_dpp v0, v1 row_shl:16 row_mask:0xf bank_mask:0xf", "row_shl 16 is not from 1 to 15"),
        ("\tv_mov_b32_dpp v0, v1 quad_perm:[0,1,2,9]", "four numbers to 3"),
        ("\tv_add_f32_dpp v0, v1, v2 row_shl:1 clamp", "modifier 'clamp' is not supported"),
        ("\tv_add_f32_e64 v0, v1, v2 op_sel:[1,0]", "op_sel of a source that is no half"),
    ],
)
def test_an_instruction_that_is_not_understood_is_named(body, message):
    with pytest.raises(InputError, match=message):
        amdgcn.load(kernel_text(body))


def test_an_endless_loop_ends():
    with pytest.raises(KernelError, match=r"<text>:5: s_branch .L0: more than max_instructions = 500"):
        run(".L0:\n\ts_branch .L0", max_instructions=500)


def test_code_without_an_end_is_refused():
    text = kernel_text("\ts_nop 0").replace("\ts_endpgm\n", "")
    with pytest.raises(KernelError, match="runs past the last instruction"):
        amdgcn.load(text)["k"].launch(1, 64, [None])


def test_an_access_out_of_bounds_names_lane_address_and_array():
    with pytest.raises(KernelError, match=r"global_store_dword .*: lane 10 touches 4 bytes at 0x\w+, .*argument 0 is"):
        run(STORE, args=[np.zeros(10, np.uint32)])


def test_a_null_pointer_is_out_of_bounds():
    with pytest.raises(KernelError, match=r"lane 0 touches 4 bytes at 0x0, out of bounds: no array is near"):
        run(STORE, args=[None])


def test_a_read_only_array_is_not_written():
    out = np.zeros(64, np.uint32)
    out.flags.writeable = False
    with pytest.raises(KernelError, match="argument 0, which is read-only"):
        run(STORE, args=[out])


def test_lds_beyond_its_size_is_out_of_bounds():
    with pytest.raises(KernelError, match=r"of LDS at 0x100, out of bounds: there are 256; .*lds_bytes"):
        run("\tv_lshlrev_b32_e32 v2, 3, v0\n\tds_write_b32 v2, v0", lds=256)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("\ts_load_dwordx2 s[4:5], s[0:1], 0x0\n\ts_mov_b32 s6, s5", r"touches s5 before s_waitcnt lgkmcnt .* line 4"),
        (
            "\ts_load_dwordx2 s[4:5], s[0:1], 0x0\n\ts_waitcnt lgkmcnt(0)\n\tv_mov_b32_e32 v2, 0\n"
            "\tglobal_load_dword v1, v2, s[4:5]\n\tv_add_u32_e32 v3, v1, v1",
            r"<text>:8: .*touches v1 before s_waitcnt vmcnt",
        ),
        (
            "\ts_load_dwordx2 s[4:5], s[0:1], 0x0\n\ts_waitcnt lgkmcnt(0)\n\tv_mov_b32_e32 v2, 0\n"
            "\tglobal_load_dword v1, v2, s[4:5]\n\tglobal_load_dword v3, v2, s[4:5]\n\ts_waitcnt vmcnt(1)\n"
            "\tv_mov_b32_e32 v4, v1\n\tv_mov_b32_e32 v4, v3",
            r"<text>:11: .*touches v3",
        ),
        ("\tds_read_b32 v1, v0 offset:0\n\tv_mov_b32_e32 v1, 0", "touches v1 before s_waitcnt lgkmcnt"),
    ],
)
def test_a_register_is_waited_for(body, message):
    if "ds_" in body:
        body = "\tv_lshlrev_b32_e32 v0, 2, v0\n" + body
    with pytest.raises(KernelError, match=message):
        run(body, lds=256)
    run(body, lds=256, strict=False)


def test_a_register_beyond_those_reserved_is_refused():
    with pytest.raises(InputError, match=r"v_mov_b32_e32 v9, 0: touches v9, the kernel reserves 8 registers"):
        run("\tv_mov_b32_e32 v9, 0", vgprs=8)
    with pytest.raises(InputError, match="touches a8"):
        run("\tv_accvgpr_write_b32 a8, 0", vgprs=8, agprs=8)


def test_arguments_must_fit():
    kernel = amdgcn.load(kernel_text("", (POINTER, WORD)))["k"]
    with pytest.raises(InputError, match="1 arguments given, takes 2"):
        kernel.launch(1, 64, [None])
    with pytest.raises(InputError, match="expected a C-contiguous array or None, got int"):
        kernel.launch(1, 64, [3, 1])
    with pytest.raises(InputError, match="number of 4 bytes"):
        kernel.launch(1, 64, [None, 1 << 40])
    with pytest.raises(InputError, match="grid is 0"):
        kernel.launch(0, 64, [None, 1])
    with pytest.raises(InputError, match="at most 1024"):
        kernel.launch(1, (64, 64), [None, 1])


def test_mutated_text_never_fails_but_by_a_message():
    random = np.random.default_rng(7)
    lines = WHOLE.splitlines()
    source = np.arange(100.0)
    for _ in range(150):
        mutated = list(lines)
        at = int(random.integers(len(lines[:90])))
        other = lines[int(random.integers(len(lines[:90])))]
        mutated[at] = [other, "", mutated[at][: len(mutated[at]) // 2], mutated[at].replace("0", "7")][
            random.integers(4)
        ]
        with contextlib.suppress(KernbenchError):
            for kernel in amdgcn.load("\n".join(mutated)).values():
                kernel.launch(1, 128, [source.copy(), None, np.zeros(100), 100, 0], max_instructions=5000)


def test_a_pointer_to_lds_is_a_number_of_its_own_size():
    body = "\ts_load_dword s4, s[0:1], 0x0\n\ts_load_dwordx2 s[6:7], s[0:1], 0x8\n\tv_lshlrev_b32_e32 v2, 2, v0\n"
    body += "\ts_waitcnt lgkmcnt(0)\n\tv_mov_b32_e32 v1, s4\n\tglobal_store_dword v2, v1, s[6:7]"
    out = np.zeros(64, np.uint32)
    run(body, [16, out], arguments=("dynamic_shared_pointer", POINTER))
    assert (out == 16).all()
    with pytest.raises(InputError, match="is a number of 4 bytes"):
        run(body, [out, out], arguments=("dynamic_shared_pointer", POINTER))
