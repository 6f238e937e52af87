"""Compiles what the interpreter launched for a GPU that need not be there: ``python
compile_kernels.py record|compile FILE``.

Recording needs ``TRITON_INTERPRET=1``, compiling must not have it, so that each is a process of its
own."""

import importlib
import json
import sys
from collections import namedtuple
from functools import partial
from pathlib import Path

import torch

TYPES = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.bool: "i1",
    torch.bfloat16: "bf16",
}


def signature(value):
    """The type of an argument as Triton's compiler names it; as when launched, no tensor and a 1
    are constants.  Of a named tuple, those of its fields."""
    if isinstance(value, tuple):
        return {name: signature(field) for name, field in zip(value._fields, value, strict=True)}
    if value is None or (isinstance(value, int) and value == 1):
        return "constexpr"
    if isinstance(value, torch.Tensor):
        return f"*{TYPES[value.dtype]}"
    if isinstance(value, int):
        return "i32" if abs(value) < 2**31 else "i64"
    return "fp32"


def record(path):
    """Runs small filters with the sizes of blocks that a GPU gets, and writes down every kind of
    launch.
    """
    from triton.runtime import interpreter

    sys.path.insert(0, str(Path(__file__).parents[2]))
    import triton_interpreter  # noqa: F401, patches it

    launches = set()
    launched = interpreter.InterpretedFunction.run

    def run(self, *given, grid, warmup, **named):
        arguments = {**dict(zip(self.arg_names, given, strict=False)), **named}
        types = {n: "constexpr" if n.isupper() else signature(arguments[n]) for n in self.arg_names}
        constants = {n: constants_of(arguments[n], kind) for n, kind in types.items()}
        options = {n: v for n, v in named.items() if n not in types}
        launches.add(json.dumps([self.fn.__module__, self.fn.__name__, types, constants, options]))
        return launched(self, *given, grid=grid, warmup=warmup, **named)

    interpreter.InterpretedFunction.run = run
    filters()
    with open(path, "w") as file:
        json.dump(sorted(launches), file)


def constants_of(value, kind):
    """The value of a constant, that of a named tuple by field; of other named tuples, the fields
    that are constants.
    """
    if isinstance(kind, dict):
        return {name: field for name, field in value._asdict().items() if kind[name] == "constexpr"}
    return None if kind != "constexpr" else value._asdict() if isinstance(value, tuple) else value


def as_argument(value):
    """The same as kernels take it: fields by name are a named tuple."""
    return namedtuple("Argument", value)(**value) if isinstance(value, dict) else value


def leaves(types, constants):
    """Yields of each argument, or field of one: its place, its name, its type, and its value if it
    is a constant.
    """
    for place, (name, kind) in enumerate(types.items()):
        if isinstance(kind, dict):
            for field, (field_name, field_kind) in enumerate(kind.items()):
                yield (
                    (place, field),
                    field_name,
                    field_kind,
                    constants.get(name, {}).get(field_name),
                )
        else:
            yield (place,), name, kind, as_argument(constants.get(name))


def filters():
    """Filters that together launch every kernel of the lattice and of the exact sum, as calls of
    users would.
    """
    from clouds import normal

    from phgcn import global_attention
    from phgcn.lattice import Ladder, Separable
    from phgcn.runtime import triton as shared

    shared.INTERPRETED = False
    cases = [  # points, heads, dimension, channels, method, queries, spread
        (9, 1, 4, 8, Separable(), 0, 1e2),
        (12, 1, 1, 1, "lattice", 0, 1.0),
        (40, 1, 1, 64, Separable(), 0, 1e-3),
        (6, 2, 4, 64, Ladder(pairs=2), 0, 2.0),
        (6, 2, 2, 64, Ladder(pairs=2), 3, 2.0),
        (70, 1, 1, 200, Ladder(pairs=2), 0, 0.1),
        (6, 2, 4, 64, "exact", 0, 1.0),
        (6, 2, 4, 64, "exact", 3, 1.0),
    ]
    for number, (count, heads, dim, channels, method, asked, spread) in enumerate(cases):
        shapes = [(count, heads, dim), (count, heads, channels), (asked, heads, dim)][
            : 2 + (asked > 0)
        ]
        inputs = [normal(*shape, seed=seed).float() for seed, shape in enumerate(shapes)]
        inputs = [(t * spread if k != 1 else t).requires_grad_() for k, t in enumerate(inputs)]
        queries = {"queries": inputs[2]} if asked else {}
        function = {"kernel": "gaussian" if isinstance(method, Ladder) and asked else "exponential"}
        call = partial(
            global_attention,
            *inputs[:2],
            **queries,
            **function,
            decay=1.0,
            method=method,
            backend="triton",
        )
        with torch.no_grad():
            call()
        with_mass = number % 2  # in turns with a gradient of the mass and without
        torch.autograd.grad(sum(t.sum() for t in call(return_mass=True)[: 1 + with_mass]), inputs)
    filter_over_ranks()


def filter_over_ranks():
    """Filters with a group of one process: what ranks do launches some kernels for other types."""
    import torch.distributed as dist
    from clouds import normal

    from phgcn import global_attention

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    positions, values = (
        5 * normal(9, 2, width, seed=width).float().requires_grad_() for width in (3, 64)
    )
    batch = torch.arange(9) % 2
    out = global_attention(
        positions, values, batch=batch, method="lattice", backend="triton", group=dist.group.WORLD
    )
    torch.autograd.grad(out.sum(), [positions, values])
    dist.destroy_process_group()


def compile_all(path):
    """Compiles all of them for compute capability 9.0."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    with open(path) as file:
        launches = json.load(file)
    for launch in launches:
        module, name, types, constants, options = json.loads(launch)
        kernel = getattr(importlib.import_module(module), name)
        # As launched with 64 channels: what is known to be a multiple of 16 decides which layouts
        # the compiler takes.
        sixteens, known = [["tt.divisibility", 16]], {}
        attributes = {}
        for place, argument, kind, value in leaves(types, constants):
            if kind == "constexpr":
                known[place] = value
            elif kind[0] == "*" or (argument, kind) == ("channels", "i32"):
                attributes[place] = sixteens
        arguments = {argument: as_argument(kind) for argument, kind in types.items()}
        source = ASTSource(kernel, signature=arguments, constexprs=known, attrs=attributes)
        try:
            compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        except Exception as error:
            sys.exit(
                f"{name} does not compile with {types} and {constants}: {error} {error.__cause__}"
            )
        # Triton 3.6 is known to take the length of the first run for that of all, before the loop
        # over them.
        code = compiled.asm["ttgir"]
        if (
            name == "_pairs"
            and types["row_count"] != "constexpr"
            and code.find('"tt.reduce"') < code.find("scf.for")
        ):
            sys.exit(
                f"{name}: the length of a run is taken before the loop over all, with {types} and "
                f"{constants}"
            )
    print(f"{len(launches)} compiled")


if __name__ == "__main__":
    {"record": record, "compile": compile_all}[sys.argv[1]](sys.argv[2])
