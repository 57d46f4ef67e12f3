"""Keys: what is in them, what provably is not, and how a miss is explained."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from thruway.artifact.key import CODE_SETTINGS, OTHER_SETTINGS, Key, differences, explain_miss, graph_key, kernel_key
from thruway.artifact.toolchain import Toolchain
from thruway.core.settings import Settings
from thruway.core.target import Target

TOOLCHAIN = Toolchain(("/usr/bin/cc",), "cc 12.2", ("-O3",), "x86_64\nflags: avx512f")


def key_of(settings: Settings) -> Key:
    return graph_key("graph text", settings, Target(), "2.14.1", "0.1")


OTHER_NAMES = {"stop": "plan", "numerics": "strict", "stance": "force_eager"}       # of settings that take known names alone


def changed(value: object) -> object:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case tuple():
            return (*value, "more")
        case _:
            return f"{value}-other"


def test_every_setting_is_sorted():
    names = {field.name for field in fields(Settings)}
    assert names == {*CODE_SETTINGS, *OTHER_SETTINGS} and not {*CODE_SETTINGS} & {*OTHER_SETTINGS}


@pytest.mark.parametrize("name", [field.name for field in fields(Settings)])
def test_only_settings_that_change_code_change_the_key(name):
    settings = Settings()
    other = replace(settings, **{name: OTHER_NAMES.get(name) or changed(getattr(settings, name))})
    assert (key_of(settings).digest != key_of(other).digest) == (name in CODE_SETTINGS)


@pytest.mark.parametrize("change", [
    {"identity": "cc 13"}, {"flags": ("-O2",)}, {"cpu": "x86_64\nflags: avx2"}, {"command": ("/usr/bin/cc", "-m32")},
])
def test_the_toolchain_is_in_the_kernel_key(change):
    assert kernel_key("int f;", TOOLCHAIN).digest != kernel_key("int f;", replace(TOOLCHAIN, **change)).digest


def test_equal_sources_have_equal_keys_wherever_the_compiler_is():
    moved = replace(TOOLCHAIN, command=("/opt/cc",))
    assert kernel_key("int f;", TOOLCHAIN) == kernel_key("int f;", moved)
    assert kernel_key("int f;", TOOLCHAIN).digest != kernel_key("int g;", TOOLCHAIN).digest


def test_entries_do_not_run_together():
    assert Key("kernel", (("a", "b,c"),)).digest != Key("kernel", (("a", "b"), ("c", ""))).digest


def test_a_miss_names_the_entries_of_the_nearest_key():
    key = key_of(Settings())
    newer_torch = graph_key("graph text", Settings(), Target(), "2.15.0", "0.1")
    other_graph = graph_key("another", Settings(), Target(), "2.14.1", "0.1")
    both = graph_key("another", Settings(numerics="strict"), Target(), "2.15.0", "0.1")
    assert differences(key, both) == ("graph", "torch", "setting numerics")
    assert explain_miss(key, [both, other_graph, newer_torch]) == "the nearest stored graph differs in: torch"
    assert explain_miss(key, [both, other_graph]) == "the nearest stored graph differs in: graph"
    assert explain_miss(key, [kernel_key("int f;", TOOLCHAIN)]) == "nothing of kind graph is stored"
    assert explain_miss(key, [key]) == "it is stored"
