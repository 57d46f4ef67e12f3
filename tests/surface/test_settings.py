"""`thruway.settings` as a value to read, to assign and to override for a while."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import thruway
from thruway import graph_compiler
from thruway.core.ambient import AmbientSettings
from thruway.core.settings import STOPS, Settings, misspelled


def test_reads_the_environment_at_first_use(monkeypatch):
    monkeypatch.setenv("THRUWAY_CHECK", "0")
    monkeypatch.setenv("THRUWAY_LOGS", "code, guards")
    ambient = AmbientSettings()
    assert ambient.check == 0 and ambient.logs == ("code", "guards")
    monkeypatch.setenv("THRUWAY_CHECK", "1")
    assert ambient.check == 0


def test_a_variable_that_does_not_fit_is_named(monkeypatch):
    monkeypatch.setenv("THRUWAY_CHECK", "much")
    with pytest.raises(ValueError, match="THRUWAY_CHECK='much': give a whole number"):
        AmbientSettings().current()


def test_assign_and_override():
    ambient = AmbientSettings(Settings())
    ambient.dump = "out"
    with ambient.override(check=2, numerics="strict") as inside:
        assert inside.check == 2 and inside.dump == "out" and ambient.numerics == "strict"
    assert ambient.check == 0 and ambient.numerics == "eager" and ambient.dump == "out"


def test_override_ends_with_an_error_too():
    ambient = AmbientSettings(Settings())
    with pytest.raises(ZeroDivisionError), ambient.override(check=2):
        1 / 0
    assert ambient.check == 0


def test_unknown_names_list_the_known_ones():
    ambient = AmbientSettings(Settings())
    for attempt in (lambda: ambient.chekc, lambda: setattr(ambient, "chekc", 1)):
        with pytest.raises(AttributeError, match="unknown setting 'chekc'; known: disable, logs"):
            attempt()
    with pytest.raises(ValueError, match="unknown setting"), ambient.override(chekc=1):
        pass


def test_types_are_checked():
    ambient = AmbientSettings(Settings())
    with pytest.raises(TypeError, match="'check' takes int, not str"):
        ambient.check = "2"
    with pytest.raises(TypeError, match="'check' takes int, not bool"):
        ambient.check = True


def test_the_public_name_is_the_ambient_one():
    assert isinstance(thruway.settings, AmbientSettings) and "check" in dir(thruway.settings)


@pytest.mark.parametrize("variable, name", [("THRUWAY_STANCE", "stance"), ("THRUWAY_NUMERICS", "numerics"), ("THRUWAY_STOP", "stop")])
def test_an_unknown_word_names_the_known_ones(variable, name):
    with pytest.raises(ValueError, match=f"unknown {name} 'fast'; known: "):
        Settings.from_environment({variable: "fast"})


def test_the_stages_to_stop_after_are_those_that_there_are():
    """The stages that the compiler of graphs names, in their order."""
    source = Path(graph_compiler.__file__).read_text()
    assert list(STOPS[1:]) == re.findall(r'self\._stage\("(\w+)"', source)


def test_a_misspelled_variable_is_named_with_the_nearest():
    with pytest.warns(RuntimeWarning, match="THRUWAY_LOG is no setting and does nothing; did you mean THRUWAY_LOGS?") as heard:
        settings = Settings.from_environment({"THRUWAY_LOG": "guards", "THRUWAY_CHECK": "1", "PATH": "/bin"})
    assert settings == Settings(check=1) and len(heard) == 1
    assert misspelled({"THRUWAY_STANC": "x", "THRUWAY_DUMPS": "y"}) == [
        "THRUWAY_STANC is no setting and does nothing; did you mean THRUWAY_STANCE?",
        "THRUWAY_DUMPS is no setting and does nothing; did you mean THRUWAY_DUMP?"]
    assert misspelled({"THRUWAY_COMPILER": "gcc", "THRUWAY_MODE": "default"}) == [
        "THRUWAY_COMPILER is no setting and does nothing; did you mean THRUWAY_CC?",
        "THRUWAY_MODE is no setting and does nothing; docs/settings.md lists them"]
    assert misspelled({"THRUWAY_CC": "cc", "OTHER_CC": ""}) == []
