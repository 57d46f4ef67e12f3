"""`show`: a graph as text, one line per node with its shape, grouped under the user's lines."""

from __future__ import annotations

import operator

from torch._ops import OpOverload
from torch.fx import Graph, Node

from thruway.core.sizes import show as show_size
from thruway.graph.aliases import node_traits
from thruway.shapes.meta import TensorMeta, contiguous_strides

SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32", "int16": "i16",
         "int8": "i8", "uint8": "u8", "bool": "bool", "complex64": "c64", "complex128": "c128"}


def show(graph: Graph) -> str:
    """Readable text; a value's strides are shown only where they are not contiguous."""
    lines: list[str] = []
    last_place = None
    for node in graph.nodes:
        place = node.meta.get("line")
        if place is not None and place != last_place:
            lines.append(f"# {place}")
            last_place = place
        lines.append(_show_node(node))
    return "\n".join(lines) + "\n"


def _show_node(node: Node) -> str:
    match node.op:
        case "placeholder":
            return f"{node.name} = {'weight' if node.meta.get('weight') else 'input'}    : {show_value(node.meta.get('value'))}"
        case "get_attr":
            return f"{node.name} = constant    : {show_value(node.meta.get('value'))}"
        case "output":
            return f"return {_argument(node.args[0])}"
        case "call_function":
            traits = node_traits(node)
            note = "    # written in place" if traits is not None and traits.writes else "    # kept" if node.meta.get("derived") else ""
            return f"{node.name} = {_call(node)}    : {show_value(node.meta.get('value'))}{note}"
        case _:
            return node.format_node() or node.name


def _call(node: Node) -> str:
    if node.target is operator.getitem:
        return f"{_argument(node.args[0])}[{node.args[1]}]"
    name = _target(node.target)
    arguments = [_argument(a) for a in node.args] + [f"{k}={_argument(v)}" for k, v in node.kwargs.items()]
    return f"{name}({', '.join(arguments)})"


def _target(target: object) -> str:
    if isinstance(target, OpOverload):
        return str(target).removesuffix(".default")
    return getattr(target, "__name__", str(target))


def _argument(value: object) -> str:
    if isinstance(value, Node):
        return value.name
    if isinstance(value, (list, tuple)):
        inside = ", ".join(_argument(v) for v in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return str(value)


def show_value(value: object) -> str:
    """ "f32[2, 3]", with strides and device where they are not the usual ones."""
    match value:
        case TensorMeta():
            text = f"{SHORT.get(value.dtype, value.dtype)}[{', '.join(map(show_size, value.sizes))}]"
            if value.strides != contiguous_strides(value.sizes):
                text += f" strides ({', '.join(map(show_size, value.strides))})"
            if value.offset != 0:
                text += f" at {show_size(value.offset)}"
            return text + (f" on {value.device}" if value.device != "cpu" else "")
        case tuple() | list():
            return f"({', '.join(show_value(v) for v in value)})"
        case None:
            return "nothing"
        case _:
            return show_size(value)
