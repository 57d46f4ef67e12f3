"""Every loop operator as C text, by the class of its dtype. Arguments are names or constants, so nothing is evaluated twice at a cost.

Integer arithmetic wraps as torch's does: 32 and 64 bits in unsigned arithmetic, narrower types by conversion back. Division by
zero has a result (0) and sets the kernel's failure flag, which `faults` names.
"""

from __future__ import annotations

from thruway.codegen.ctypes_c import REGISTER, SINGLE, UNSIGNED, register_type
from thruway.core.errors import Unsupported
from thruway.loops.ir import Expr, Literal, Op

INFIX = {"add": "+", "sub": "-", "mul": "*"}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
LOGICAL = {"and": "&", "or": "|", "xor": "^"}
BITS = {"bitand": "&", "bitor": "|", "bitxor": "^"}
FAULTS = frozenset({"div", "floordiv", "truncdiv", "mod", "fmod"})
BUILTIN = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "sqrt": "sqrt", "abs": "fabs", "copysign": "copysign"}
FLOAT_CALLS = frozenset({
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma", "sigmoid", "pow", "atan2", "hypot", "floordiv", "mod", "fmod",
    "nextafter", "ldexp", "min", "max", "fmin", "fmax", "sign", "truncdiv",
})
# Only right up to a certain size of the argument; a block that meets a larger one is computed again by the exact function.
BLOCKWISE = frozenset({"sin", "cos"})
# No vector form: one call of the C library per element.
SCALAR_CALLS = frozenset({"erfinv", "lgamma", "digamma", "nextafter", "fmod", "mod", "floordiv", "hypot", "atan2", "ldexp"})


def is_float(dtype: str) -> bool:
    return dtype in SINGLE or dtype == "float64"


def may_fault(op: Op) -> bool:
    """Whether the operator raises in eager: an integer division whose divisor might be zero."""
    if op.name not in FAULTS or is_float(op.dtype):
        return False
    divisor = op.args[1]
    return not (isinstance(divisor, Literal) and divisor.value != 0 or _is_never_zero(divisor))


def _is_never_zero(divisor: Expr) -> bool:
    """Whether it is a checked divisor: 1 where it was 0, and 1 more where the check, which then fails, was made elsewhere."""
    match divisor:
        case Op("add", (Op("where", (Op("eq", (value, Literal(0))), Literal(1), other)), _)):
            return value == other
        case _:
            return False


def operator(op: Op, args: list[str]) -> str:
    """C text of `op` applied to `args`, in registers."""
    name, dtype = op.name, op.dtype
    operand = op.args[-1].dtype
    if name in COMPARE:
        return f"({args[0]} {COMPARE[name]} {args[1]})"
    if name in LOGICAL:
        return f"(({args[0]} != 0) {LOGICAL[name]} ({args[1]} != 0))"
    match name:
        case "not":
            return f"({args[0]} == 0)"
        case "where":
            return f"({args[0]} ? {args[1]} : {args[2]})"
        case "isnan":
            return f"({args[0]} != {args[0]})" if is_float(operand) else "0"
        case "isinf":
            return f"({_fabs(operand)}({args[0]}) == {_inf(operand)})" if is_float(operand) else "0"
        case "signbit":
            return f"(tw_signbit{_suffix(operand)}({args[0]}))" if is_float(operand) else f"({args[0]} < 0)"
        case "bitcast":
            return _bitcast(args[0], operand, dtype)
        case _:
            return _float(name, args, dtype) if is_float(dtype) else _integer(name, args, dtype)


def _suffix(dtype: str) -> str:
    return "_d" if dtype == "float64" else ""


def _fabs(dtype: str) -> str:
    return "__builtin_fabs" if dtype == "float64" else "__builtin_fabsf"


def _inf(dtype: str) -> str:
    return "__builtin_inf()" if dtype == "float64" else "__builtin_inff()"


def _float(name: str, args: list[str], dtype: str) -> str:
    c = "" if dtype == "float64" else "f"
    one = "1.0" + c
    if name in INFIX:
        return f"({args[0]} {INFIX[name]} {args[1]})"
    if name in BUILTIN:
        return f"__builtin_{BUILTIN[name]}{c}({', '.join(args)})"
    if name == "floordiv":      # the plain name belongs to sizes
        return f"tw_floordiv_{'d' if dtype == 'float64' else 'f'}({', '.join(args)})"
    if name in FLOAT_CALLS:
        return f"tw_{name}{_suffix(dtype)}({', '.join(args)})"
    match name:
        case "div":
            return f"({args[0]} / {args[1]})"
        case "neg":
            return f"(-{args[0]})"
        case "reciprocal":
            return f"({one} / {args[0]})"
        case "rsqrt":
            return f"({one} / __builtin_sqrt{c}({args[0]}))"
        case "fma":
            return f"__builtin_fma{c}({', '.join(args)})"
        case _:
            raise Unsupported("TW602", f"the operator {name} over {dtype} in a generated kernel")


def _integer(name: str, args: list[str], dtype: str) -> str:
    kind = register_type(dtype)
    wide = UNSIGNED.get(dtype)
    unsigned = dtype.startswith("u") or dtype == "bool"
    if name in INFIX:
        if wide:
            return f"({kind})(({wide}){args[0]} {INFIX[name]} ({wide}){args[1]})"
        return f"({kind})({args[0]} {INFIX[name]} {args[1]})"
    if name in BITS:
        return f"({kind})({args[0]} {BITS[name]} {args[1]})"
    if name in FAULTS and name != "div":
        family = "u64" if unsigned else "i64"
        return f"({kind})tw_{name}_{family}({args[0]}, {args[1]})"
    match name:
        case "div":
            return f"({kind})tw_truncdiv_{'u64' if unsigned else 'i64'}({args[0]}, {args[1]})"
        case "min" | "fmin":
            return f"({args[0]} < {args[1]} ? {args[0]} : {args[1]})"
        case "max" | "fmax":
            return f"({args[0]} > {args[1]} ? {args[0]} : {args[1]})"
        case "neg":
            return f"({kind})(-({wide}){args[0]})" if wide else f"({kind})(-{args[0]})"
        case "abs":
            return args[0] if unsigned else f"({args[0]} < 0 ? {_integer('neg', args, dtype)} : {args[0]})"
        case "sign":
            return f"({kind})(({args[0]} > 0) - ({args[0]} < 0))"
        case "bitnot":
            return f"({args[0]} == 0)" if dtype == "bool" else f"({kind})(~{args[0]})"
        case "shl" | "shr":
            bits = {"uint8": 8, "int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32}.get(dtype, 64)
            return f"({kind})tw_{name}_{'u64' if unsigned else 'i64'}({args[0]}, {args[1]}, {bits})"
        case "pow":
            return f"({kind})tw_pow_i64({args[0]}, {args[1]})"
        case "floor" | "ceil" | "trunc" | "round":
            return args[0]
        case _:
            raise Unsupported("TW602", f"the operator {name} over {dtype} in a generated kernel")


def _bitcast(text: str, source: str, target: str) -> str:
    if source == target:
        return text
    names = {"float32": "f", "int32": "i", "uint32": "u", "float64": "d", "int64": "l", "uint64": "q"}
    if source in names and target in names:
        return f"tw_bits_{names[source]}{names[target]}({text})"
    short = {"int16", "uint16"}
    if source in {"bfloat16", "float16"} and target in short:
        return f"({REGISTER[target]})tw_f2{source[0]}({text})" if source == "bfloat16" else f"({REGISTER[target]})tw_f2h({text})"
    if source in short and target in {"bfloat16", "float16"}:
        return f"tw_{'b' if target == 'bfloat16' else 'h'}2f((unsigned short){text})"
    if source in short and target in short or {source, target} <= {"int8", "uint8"}:
        return f"({REGISTER[target]}){text}"
    raise Unsupported("TW602", f"a view of {source} as {target} in a generated kernel")
