"""Writes one kernel as LLVM IR. Values are SSA names or constants; a variable is a slot that optimisation removes."""

from contextlib import contextmanager

GLOBAL, LDS, STACK = 1, 3, 5
SCALARS = {"f32": "float", "i32": "i32"}
FENCE = 'fence syncscope("workgroup") '


class Function:
    def __init__(self, name, signature):
        self.name, self.signature = name, signature
        self.lines, self.slots, self.declared, self.shared, self.count = [], [], set(), [], 0

    def text(self):
        arguments = ", ".join(self.argument(**entry) for entry in self.signature)
        head = f"define amdgpu_kernel void @{self.name}({arguments}) #0 {{"
        tail = ["  ret void", "}", 'attributes #0 = { nounwind "amdgpu-flat-work-group-size"="64,64" }']
        return "\n".join([*self.shared, *sorted(self.declared), head, "entry:", *self.slots, *self.lines, *tail]) + "\n"

    def argument(self, name, type):
        if type in SCALARS:
            return f"{SCALARS[type]} %{name}"
        use = "writeonly" if name == "O" else "readonly"
        return f"ptr addrspace({GLOBAL}) noalias {use} nocapture %{name}"

    # ---------------------------------------------------------------- values
    def value(self, text):
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def do(self, text):
        self.lines.append(f"  {text}")

    def add(self, a, b):
        return self.value(f"add i32 {a}, {b}")

    def mul(self, a, b):
        return self.value(f"mul i32 {a}, {b}")

    def div(self, a, b):
        return self.value(f"udiv i32 {a}, {b}")

    def bits(self, operation, a, b):
        return self.value(f"{operation} i32 {a}, {b}")

    def compare(self, how, a, b):
        return self.value(f"icmp {how} i32 {a}, {b}")

    def fadd(self, a, b):
        return self.value(f"fadd float {a}, {b}")

    def fsub(self, a, b):
        return self.value(f"fsub float {a}, {b}")

    def fmul(self, a, b):
        return self.value(f"fmul float {a}, {b}")

    def maximum(self, a, b):
        return self.call("float", "llvm.maxnum.f32", ("float", a), ("float", b))

    def exp2(self, a):
        return self.call("float", "llvm.exp2.f32", ("float", a))

    def select(self, condition, a, b):
        return self.value(f"select i1 {condition}, float {a}, float {b}")

    def cast(self, how, value, old, new):
        return self.value(f"{how} {old} {value} to {new}")

    def call(self, result, name, *arguments):
        self.declared.add(f"declare {result} @{name}({', '.join(kind for kind, _ in arguments)})")
        text = f"call {result} @{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})"
        return self.do(text) if result == "void" else self.value(text)

    def vector(self, kind, values):
        found = "poison"
        for i, value in enumerate(values):
            found = self.value(f"insertelement <{len(values)} x {kind}> {found}, {kind} {value}, i32 {i}")
        return found

    def element(self, kind, lanes, vector, i):
        return self.value(f"extractelement <{lanes} x {kind}> {vector}, i32 {i}")

    # ---------------------------------------------------------------- memory
    def at(self, pointer, kind, index, space=GLOBAL):
        return self.value(f"getelementptr {kind}, ptr addrspace({space}) {pointer}, i32 {index}")

    def load(self, pointer, kind, index, space=GLOBAL, wide=None, align=None):
        place = self.at(pointer, kind, index, space)
        more = f", align {align}" if align else ""
        return self.value(f"load {wide or kind}, ptr addrspace({space}) {place}{more}")

    def store(self, pointer, kind, index, value, space=GLOBAL):
        self.do(f"store {kind} {value}, ptr addrspace({space}) {self.at(pointer, kind, index, space)}")

    def lds(self, name, kind, count):
        self.shared.append(f"@{name} = internal addrspace({LDS}) global [{count} x {kind}] poison, align 16")
        return f"@{name}"

    def sync(self):
        self.do(FENCE + "release")
        self.call("void", "llvm.amdgcn.s.barrier")
        self.do(FENCE + "acquire")

    # ---------------------------------------------------------------- control
    def variable(self, kind, first):
        self.count += 1
        slot = f"%v{self.count}"
        self.slots.append(f"  {slot} = alloca {kind}, addrspace({STACK})")  # in the first block, else it stays memory
        self.set(slot, kind, first)
        return slot

    def get(self, slot, kind):
        return self.value(f"load {kind}, ptr addrspace({STACK}) {slot}")

    def set(self, slot, kind, value):
        self.do(f"store {kind} {value}, ptr addrspace({STACK}) {slot}")

    @contextmanager
    def loop(self, count):
        self.count += 1
        test, body, end = (f"{word}{self.count}" for word in ("test", "body", "end"))
        slot = self.variable("i32", 0)
        self.do(f"br label %{test}\n{test}:")
        i = self.get(slot, "i32")
        self.do(f"br i1 {self.compare('slt', i, count)}, label %{body}, label %{end}\n{body}:")
        yield i
        self.set(slot, "i32", self.add(i, 1))
        self.do(f"br label %{test}\n{end}:")

    @contextmanager
    def when(self, condition):
        self.count += 1
        then, after = f"then{self.count}", f"after{self.count}"
        self.do(f"br i1 {condition}, label %{then}, label %{after}\n{then}:")
        yield
        self.do(f"br label %{after}\n{after}:")

    # ---------------------------------------------------------------- lanes
    def lane(self):
        return self.call("i32", "llvm.amdgcn.workitem.id.x")

    def group(self, axis):
        return self.call("i32", f"llvm.amdgcn.workgroup.id.{axis}")

    def from_lane_xor(self, value, mask, lane):
        """Return another lane's float: that of the lane whose number differs in the bits of ``mask``."""
        word = self.cast("bitcast", value, "float", "i32")
        if mask < 32:
            got = self.call("i32", "llvm.amdgcn.ds.swizzle", ("i32", word), ("i32 immarg", mask << 10 | 31))
        else:
            place = self.mul(self.bits("xor", lane, mask), 4)
            got = self.call("i32", "llvm.amdgcn.ds.bpermute", ("i32", place), ("i32", word))
        return self.cast("bitcast", got, "i32", "float")

    def butterfly(self, value, combine, masks, lane):
        for mask in masks:
            value = combine(value, self.from_lane_xor(value, mask, lane))
        return value
