import os

LAYOUT = (
    "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128:128:48-"
    "p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-"
    "v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"
)
FLAVOURS = {
    "llvm20": LAYOUT.replace("p8:128:128:128:48", "p8:128:128"),
    "llvm22": LAYOUT,
    "llvm23": LAYOUT.replace("e-p:", "e-m:e-p:"),
}


def lower_kernel_to_llvm(kernel, *, llvm_flavor=None, arch=None):
    assert os.environ["ROCKE_BACKEND"] == "python", "this test has no C++ engine"
    body = kernel.emit(arch)
    head = f'target datalayout = "{FLAVOURS[llvm_flavor]}"\ntarget triple = "amdgcn-amd-amdhsa"\n'
    return head + body
