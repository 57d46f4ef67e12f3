"""Settings: one frozen value, passed to stages. Only `pipeline` and the public surface read the ambient one.

Each field names its environment variable; docs/settings.md is generated from this page.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from thruway.core.notice import warn

STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile")
NUMERICS = ("eager", "strict", "fused")
FAR = 2             # edits beyond which a name is another word
LOGS = ("graph_breaks", "recompiles", "graphs", "guards", "passes", "loops", "code", "cache", "weights", "choices", "bugs")
LARGEST = {"check": None, "verify": 2, "cache_size_mb": None, "tune_seconds": None, "entry_limit_mb": None}           # of settings that count from 0
STOPS = ("", "retrace", "lower", "plan", "generate")


def _setting(default, env: str, doc: str):
    return field(default=default, metadata={"env": env, "doc": doc})


@dataclass(frozen=True, slots=True)
class Settings:
    disable: bool = _setting(False, "THRUWAY_DISABLE", "1 keeps everything eager.")
    logs: tuple[str, ...] = _setting((), "THRUWAY_LOGS", "Comma-separated topics to print; `help` lists them.")
    dump: str = _setting("", "THRUWAY_DUMP", "Folder that gets numbered files, one per stage of each compilation.")
    verify: int = _setting(0, "THRUWAY_VERIFY", "0: no verification between stages; 1: at stage borders; 2: after every pass.")
    check: int = _setting(0, "THRUWAY_CHECK", "Shadow mode: that many first calls of each function run eager beside; a difference is an error.")
    check_dir: str = _setting("", "THRUWAY_CHECK_DIR", "Folder for the scripts that reproduce a difference; empty: `thruway-differences` here; `-`: none.")
    stop: str = _setting("", "THRUWAY_STOP", "Stage after which compilation for a CPU stops: retrace, lower, plan or generate; the graph runs eager.")
    cache_dir: str = _setting("", "THRUWAY_CACHE_DIR", "Folder of compiled kernels; empty: the user's cache folder.")
    cache_size_mb: int = _setting(2048, "THRUWAY_CACHE_SIZE_MB", "The cache folder is trimmed to this size, least recently used first.")
    compiler: str = _setting("", "THRUWAY_CC", "C compiler to use; empty: $CC, cc, gcc, clang, then the ziglang wheel.")
    numerics: str = _setting(
        "eager", "THRUWAY_NUMERICS",
        "eager: round where eager rounds, but for the exceptions that the README lists; strict: none of them; "
        "fused: as eager, and long rows of float32 products are summed in one call of the library.")
    break_notice: bool = _setting(True, "THRUWAY_BREAK_NOTICE", "One line on stderr where a function did not compile whole, and at its 16th recompilation.")
    capture_below: bool = _setting(True, "THRUWAY_BELOW", "Capture functions that plain Python calls below a break.")
    error_on_break: bool = _setting(False, "THRUWAY_ERROR_ON_BREAK", "What cannot be captured is an error, as with fullgraph=True.")
    stance: str = _setting(
        "default", "THRUWAY_STANCE",
        "default; force_eager: run no compiled code; eager_on_recompile, fail_on_recompile: at a call that no entry answers.")
    measure: bool = _setting(True, "THRUWAY_MEASURE", "Time compiled against eager after the first calls and keep the faster.")
    tune_seconds: int = _setting(60, "THRUWAY_TUNE_SECONDS", "Seconds that max-autotune may take for a graph on a GPU; then the best so far.")
    entry_limit_mb: int = _setting(512, "THRUWAY_ENTRY_MB", "Memory that the entries of one function may hold before the least used go.")

    def __post_init__(self) -> None:
        for name, known in (("stance", STANCES), ("numerics", NUMERICS), ("stop", STOPS)):
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"unknown {name} {value!r}; known: {', '.join(filter(None, known))}")
        for name, largest in LARGEST.items():
            if (value := getattr(self, name)) < 0 or largest is not None and value > largest:
                raise ValueError(f"{name} takes a whole number from 0{f' to {largest}' if largest is not None else ''}, not {value}")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """Defaults changed by the variables that are set. ValueError names the variable whose text does not fit; names that are
        misspelled are warned of."""
        changes = {}
        for complaint in misspelled(environ):
            warn(complaint)
        for f in fields(cls):
            text = environ.get(f.metadata["env"])
            if text is not None:
                changes[f.name] = _parse(f.metadata["env"], text, f.default)
                try:
                    replace(cls(), **{f.name: changes[f.name]})
                except ValueError as error:
                    raise ValueError(f"{f.metadata['env']}={text!r}: {error}") from None
        return replace(cls(), **changes)


def misspelled(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that looks like a setting and is none, with the one that was meant where a name is near."""
    known = {f.metadata["env"]: f.metadata["env"] for f in fields(Settings)}
    unknown = [name for name in environ if name.upper().startswith("THRUWAY_") and name not in known]
    near = known | {f"THRUWAY_{f.name.upper()}": f.metadata["env"] for f in fields(Settings)}
    return [f"{name} is no setting and does nothing; {_meant(name.upper(), near)}" for name in unknown]


def _meant(name: str, near: Mapping[str, str]) -> str:
    nearest = min(near, key=lambda one: _edits(name, one))
    return f"did you mean {near[nearest]}?" if _edits(name, nearest) <= FAR else "docs/settings.md lists them"


def _edits(one: str, other: str) -> int:
    """How many letters must be put in, taken out or changed to make `other` of `one`."""
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, wanted in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (letter != wanted))
    return row[-1]


def words_of(text: str) -> tuple[str, ...]:
    """What stands between the commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _parse(variable: str, text: str, default):
    match default:
        case bool():
            if text.lower() not in {"", "0", "1", "false", "true"}:
                raise ValueError(f"{variable}={text!r}: give 0 or 1")
            return text.lower() in {"1", "true"}
        case int():
            try:
                return int(text)
            except ValueError:
                raise ValueError(f"{variable}={text!r}: give a whole number") from None
        case tuple():
            return words_of(text)
        case _:
            return text
